//! `doctor --gpu`: what each GPU is and does, to be pasted into an issue.

use std::time::{Duration, Instant};

use gpu::{AdapterReport, Gpu};
use serde::Serialize;

use super::text::Lines;
use crate::output::note;
use crate::size::Size;

/// `--json`, and what the text shows.
#[derive(Debug, Serialize)]
struct Report {
    program: String,
    system: String,
    gpus: Vec<Examined>,
}

/// A GPU as `doctor` lists it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Listed {
    /// `gpu:N`
    index: usize,
    name: String,
    kind: &'static str,
    interface: String,
    refused: Option<String>,
}

#[derive(Debug, Serialize)]
struct Examined {
    #[serde(flatten)]
    listed: Listed,
    driver: String,
    memory_bytes: Option<u64>,
    binding_bytes_max: u64,
    buffer_bytes_max: u64,
    workgroup_bytes: u32,
    subgroup_threads: (u32, u32),
    features: Vec<&'static str>,
    missing_features: Vec<&'static str>,
    /// Why it could not be tested or measured to the end.
    failure: Option<String>,
    self_test: Option<SelfTest>,
    speed: Option<Speed>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct SelfTest {
    /// The first time, when pipelines are made.
    first_ms: f64,
    again_ms: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Speed {
    round_trip_us: f64,
    recording_us: f64,
    read_gb_s: f64,
    gflop_s: f64,
}

/// What the system lists.
pub(super) fn list() -> Vec<Listed> {
    gpu::adapters().into_iter().map(Listed::from).collect()
}

/// Prints all about GPUs.
pub(super) fn doctor(is_json: bool) -> anyhow::Result<()> {
    let report = Report {
        program: format!("flash-moe {}", env!("CARGO_PKG_VERSION")),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        gpus: gpu::adapters().into_iter().map(examine).collect(),
    };
    match is_json {
        true => crate::report::print(&report),
        false => super::print_text(&show(&report)),
    }
}

fn examine(adapter: AdapterReport) -> Examined {
    let features = |is_offered: bool| {
        adapter.features.iter().filter(|f| f.is_offered == is_offered).map(|f| f.name).collect()
    };
    let mut examined = Examined {
        driver: adapter.driver.clone(),
        memory_bytes: adapter.memory_bytes,
        binding_bytes_max: adapter.binding_bytes_max,
        buffer_bytes_max: adapter.buffer_bytes_max,
        workgroup_bytes: adapter.workgroup_bytes,
        subgroup_threads: adapter.subgroup,
        features: features(true),
        missing_features: features(false),
        failure: None,
        self_test: None,
        speed: None,
        listed: adapter.into(),
    };
    if examined.listed.refused.is_none() {
        note(format_args!("measuring {}", examined.listed.name));
        examined.failure = examined.measure().err().map(|error| error.to_string());
    }
    examined
}

impl From<AdapterReport> for Listed {
    fn from(adapter: AdapterReport) -> Self {
        let AdapterReport { index, name, interface, refused, .. } = adapter;
        Self { index, name, kind: adapter.kind.name(), interface, refused }
    }
}

impl Listed {
    #[cfg(test)]
    pub(super) fn example() -> Self {
        let (name, interface) = ("A GPU".into(), "Vulkan".into());
        Self { index: 0, name, kind: "discrete", interface, refused: None }
    }

    /// On one line.
    pub(super) fn line(&self) -> String {
        let refused = self.refused.as_ref().map_or(String::new(), |why| format!("; refused: {why}"));
        format!("gpu:{} {}, {}, {}{refused}", self.index, self.name, self.kind, self.interface)
    }
}

impl Examined {
    fn measure(&mut self) -> Result<(), gpu::GpuError> {
        let gpu = Gpu::open_untested(Some(self.listed.index))?;
        let start = Instant::now();
        let gpu = gpu.self_test()?;
        let first = start.elapsed();
        let gpu = gpu.self_test()?;
        let again = start.elapsed() - first;
        self.self_test = Some(SelfTest { first_ms: ms(first), again_ms: ms(again) });
        self.speed = Some(Speed {
            round_trip_us: 1e3 * ms(gpu.measure_round_trip()?),
            recording_us: 1e3 * ms(gpu.measure_recording()?),
            read_gb_s: 1e-9 * gpu.measure_read_bandwidth()?,
            gflop_s: 1e-9 * gpu.measure_flop_rate()?,
        });
        Ok(())
    }
}

fn ms(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

fn show(report: &Report) -> String {
    let mut out = Lines::default();
    let n = report.gpus.len();
    out.title(&format!("{}, {}, {n} GPU{}", report.program, report.system, if n == 1 { "" } else { "s" }));
    if report.gpus.is_empty() {
        out.line("none was found: neither Vulkan nor Metal nor DX12 lists one");
    }
    for gpu in &report.gpus {
        show_one(&mut out, gpu);
    }
    out.text()
}

fn show_one(out: &mut Lines, gpu: &Examined) {
    let Listed { index, name, kind, interface, refused } = &gpu.listed;
    out.title(&format!("gpu:{index}  {name}"));
    out.row("kind", kind);
    out.row("driver", &format!("{interface}, {}", gpu.driver));
    let memory = gpu.memory_bytes.map_or("unknown".to_owned(), |bytes| Size(bytes).to_string());
    out.row("memory", &memory);
    let [binding, buffer] = [gpu.binding_bytes_max, gpu.buffer_bytes_max].map(Size);
    out.row("limits", &format!("a kernel sees {binding} at a time, buffers of {buffer}"));
    let (least, most) = gpu.subgroup_threads;
    let threads = if least == most { least.to_string() } else { format!("{least} to {most}") };
    let shared = Size(gpu.workgroup_bytes.into());
    out.row("subgroups", &format!("{threads} threads; workgroups share {shared}"));
    out.row("features", &gpu.features.join(", "));
    if !gpu.missing_features.is_empty() {
        out.row("missing", &gpu.missing_features.join(", "));
    }
    match (refused, &gpu.failure) {
        (Some(why), _) => out.row("verdict", &format!("refused: {why}")),
        (None, Some(why)) => out.row("verdict", &format!("failed: {}", why.trim_end())),
        (None, None) => out.row("verdict", "can be used"),
    }
    if let Some(test) = gpu.self_test {
        let making = test.first_ms - test.again_ms;
        out.row(
            "self-test",
            &format!("passed in {:.1} ms, and {making:.0} ms to make its kernels", test.again_ms),
        );
    }
    if let Some(speed) = gpu.speed {
        out.row("waits", &format!("{:.0} us for the least work", speed.round_trip_us));
        out.row("recording", &format!("{:.2} us a dispatch", speed.recording_us));
        out.row("reads", &format!("{:.1} GB/s", speed.read_gb_s));
        out.row("arithmetic", &format!("{:.0} GFLOP/s, f32", speed.gflop_s));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GPU about which everything is known.
    fn known() -> Examined {
        Examined {
            listed: Listed::example(),
            driver: "driver 1.2".into(),
            memory_bytes: Some(24 << 30),
            binding_bytes_max: 2 << 30,
            buffer_bytes_max: 4 << 30,
            workgroup_bytes: 48 << 10,
            subgroup_threads: (32, 64),
            features: vec!["subgroups", "timestamps"],
            missing_features: vec!["cooperative matrices"],
            failure: None,
            self_test: Some(SelfTest { first_ms: 905.0, again_ms: 5.0 }),
            speed: Some(Speed {
                round_trip_us: 115.0,
                recording_us: 1.25,
                read_gb_s: 930.0,
                gflop_s: 41000.0,
            }),
        }
    }

    fn shown(gpus: Vec<Examined>) -> String {
        show(&Report { program: "flash-moe 1".into(), system: "linux x86_64".into(), gpus })
    }

    /// An issue would lack what is needed to understand it, or name a GPU fit that is not.
    #[test]
    fn the_report_says_what_each_gpu_is_and_why_not() {
        let text = shown(vec![known()]);
        for wanted in [
            "flash-moe 1, linux x86_64, 1 GPU\n",
            "gpu:0  A GPU",
            "24.00 GiB",
            "32 to 64 threads; workgroups share 48",
            "missing     cooperative matrices",
            "verdict     can be used",
            "passed in 5.0 ms, and 900 ms",
            "115 us",
            "930.0 GB/s",
            "41000 GFLOP/s",
        ] {
            assert!(text.contains(wanted), "'{wanted}' in\n{text}");
        }
        let nothing = |mut gpu: Examined| {
            (gpu.self_test, gpu.speed) = (None, None);
            gpu
        };
        let mut refused = nothing(known());
        refused.listed.refused = Some("it has no wings".into());
        assert_eq!(refused.listed.line(), "gpu:0 A GPU, discrete, Vulkan; refused: it has no wings");
        let failed = Examined { failure: Some("its result of a norm is wrong".into()), ..nothing(known()) };
        let text = shown(vec![refused, failed]);
        for wanted in
            ["verdict     refused: it has no wings", "verdict     failed: its result of a norm is wrong"]
        {
            assert!(text.contains(wanted), "'{wanted}' in\n{text}");
        }
        assert!(!text.contains("passed") && !text.contains("can be used"), "{text}");
        assert!(shown(Vec::new()).contains("none was found"));
    }
}
