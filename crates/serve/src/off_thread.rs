//! Work that takes longer than the threads that serve connections have.

use crate::error::{ApiError, ErrorKind};

/// Does it on a thread of its own.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError::new(ErrorKind::Internal, error.to_string()))?
}
