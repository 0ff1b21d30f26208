//! The clock: date and time now.

use jiff::Zoned;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

pub(super) fn declaration() -> Value {
    json!({ "type": "function", "function": {
        "name": "clock",
        "description": "Tells the current date, day of the week and time, in UTC and where the user is.",
        "parameters": { "type": "object", "properties": {} }
    } })
}

/// Now, in UTC and, if the system knows its zone, in local time.
pub(super) fn tell() -> String {
    let now = Zoned::now();
    let utc = now.with_time_zone(TimeZone::UTC).strftime("%A, %Y-%m-%d %H:%M:%S UTC").to_string();
    if now.time_zone().is_unknown() {
        return utc;
    }
    format!("{utc}; local time {}", now.strftime("%A, %Y-%m-%d %H:%M:%S, UTC%:z"))
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    /// The model would be told another day.
    #[test]
    fn the_clock_tells_this_time() {
        let told = tell();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let now = jiff::Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap();
        // A day may have ended in between.
        let days = [now, now - jiff::SignedDuration::from_secs(60)]
            .map(|time| time.strftime("%A, %Y-%m-%d ").to_string());
        assert!(days.iter().any(|day| told.starts_with(day)) && told.contains(" UTC"), "{told}");
    }
}
