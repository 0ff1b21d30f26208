//! The report for people: one screen, figures below each other, plain words.

use std::fmt::Write;

use stream::MemoryFacts;

use super::{Fit, Model, Outcome, Report};
use crate::predict::{Band, Limit, Prediction};
use crate::size::Size;

/// Ways to read that are shown.
const N_SETTING: usize = 4;
/// Where lines of advice are broken.
const WIDTH: usize = 100;

/// The whole report.
pub(super) fn show(report: &Report) -> String {
    let mut out = Lines::default();
    machine(&mut out, report);
    measured(&mut out, report);
    match &report.models[..] {
        [model] => one(&mut out, model),
        models => all(&mut out, models),
    }
    out.title("what to change");
    for line in &report.advice {
        out.wrapped("- ", line);
    }
    if report.advice.is_empty() {
        out.line("nothing: this machine is used as well as it can be");
    }
    out.text()
}

fn machine(out: &mut Lines, report: &Report) {
    let m = &report.machine;
    out.title("this machine");
    let threads = if m.threads == 1 { "1 thread".into() } else { format!("{} threads", m.threads) };
    out.row("processor", &format!("{}, {}", m.cpu, m.instruction_set));
    out.row("cores", &format!("{}; {threads} compute{}", m.cores, if m.threads == 1 { "s" } else { "" }));
    for (i, gpu) in m.gpus.iter().enumerate() {
        out.row(if i == 0 { "graphics" } else { "" }, &gpu.line());
    }
    match m.gpus.is_empty() {
        true => out.row("graphics", "none found"),
        false => out.row("", "what follows is about the processor; 'doctor --gpu' measures these"),
    }
    out.row("memory", &memory(&m.memory));
    if let Some(drive) = &m.drive {
        let names = [&drive.model, &drive.device, &drive.filesystem];
        let names: Vec<&str> = names.into_iter().filter_map(|name| name.as_deref()).collect();
        out.row("drive", &if names.is_empty() { "unknown".into() } else { names.join(", ") });
    }
}

fn memory(m: &MemoryFacts) -> String {
    let mut text = Size(m.physical_bytes).to_string();
    if let Some(limit) = m.limit_bytes {
        text += &format!(", this container may use {}", Size(limit));
    }
    text += &format!(", {} available", Size(m.available_bytes));
    text += &match (m.swap_bytes, m.swap_used_bytes) {
        (0, _) => ", no swap".to_owned(),
        (all, used) => format!(", {} of {} swap in use", Size(used), Size(all)),
    };
    if let Some(huge_pages) = &m.huge_pages {
        text += &format!(", huge pages {huge_pages}");
    }
    text
}

fn measured(out: &mut Lines, report: &Report) {
    let m = &report.measured;
    out.title("measured");
    let mut rate = |name: &str, gb_s: f64, what: &str| out.row(name, &format!("{gb_s:>7.2} GB/s   {what}"));
    if let Some(drive) = &m.drive {
        let size = Size(drive.request_bytes as u64);
        rate(
            "drive",
            drive.direct_gb_s,
            &format!("random reads of one expert ({size}), past the page cache"),
        );
        rate("", drive.buffered_gb_s, "the same through the page cache, nothing cached");
        rate("", drive.page_cache_gb_s, "out of the page cache");
    }
    if let Some(ram) = m.ram_gb_s {
        rate("memory", ram, "reads");
    }
    rate("products", m.experts_gb_s, "of weights: experts, one token");
    rate("", m.dense_gb_s, "of weights: dense layers, one token");
    out.row("", &format!("{:>7.0} GFLOP/s of experts, many tokens", m.prefill_gflop_s));
    if let Some(drive) = &m.drive {
        let settings = drive.settings.iter().take(N_SETTING).map(|s| {
            let size = Size(s.request_bytes as u64);
            format!("{:>7.2} GB/s   {} reads of {size} at a time ({})", s.gb_s, s.depth, s.method)
        });
        for (i, setting) in settings.enumerate() {
            out.row(if i == 0 { "settings" } else { "" }, &setting);
        }
    }
}

fn one(out: &mut Lines, model: &Model) {
    let fit = match &model.outcome {
        Outcome::Fits(fit) => fit,
        Outcome::DoesNotFit { needed_bytes } => {
            out.title(&model.name);
            return out.line(&format!("does not fit: it needs at least {}", Size(*needed_bytes)));
        }
    };
    out.title(&format!("{} in {} of memory", model.name, Size(fit.budget_bytes)));
    let share = 100.0 * fit.n_slot as f64 / fit.n_expert_record.max(1) as f64;
    out.row(
        "experts",
        &format!(
            "{} on disk; {} of {} in memory at a time ({share:.0} %), cache {}",
            Size(model.expert_bytes),
            fit.n_slot,
            fit.n_expert_record,
            fit.cache
        ),
    );
    let Some(p) = &fit.prediction else { return out.line("no prediction: the drive could not be measured") };
    out.row(
        "hits",
        &format!("{:.0} % of requests are expected to find their expert in memory", 100.0 * p.hit_rate),
    );
    let row = |band: &Band, unit: &str, note: String| {
        let range = format!("{} to {}", figure(band.low), figure(band.high));
        format!("{:>4} {unit:<6} {range:<14} {note}", figure(band.likely))
    };
    out.row("answer", &row(&p.decode_tok_s, "tok/s", limit(p.decode_limit)));
    let prompt = format!("a prompt of {} tokens; {}", p.n_prompt, limit(p.prefill_limit));
    out.row("prompt", &row(&p.prefill_tok_s, "tok/s", prompt));
    out.row(
        "first token",
        &row(&p.first_token_s, "s", "after that prompt, with nothing in memory yet".into()),
    );
}

fn all(out: &mut Lines, models: &[Model]) {
    let fits = |model: &Model| match &model.outcome {
        Outcome::Fits(fit) => Some(fit.budget_bytes),
        Outcome::DoesNotFit { .. } => None,
    };
    let budget = models.iter().find_map(fits);
    let memory = budget.map_or(String::new(), |bytes| format!(" in {} of memory", Size(bytes)));
    out.title(&format!("predictions at 4 bits{memory}"));
    out.line(&format!(
        "{:<15}{:>12}{:>8}   {:<20}{:<20}{:<20}{}",
        "", "experts", "hits", "answer, tok/s", "prompt, tok/s", "first token, s", "limit"
    ));
    for model in models {
        let start = format!("{:<15}{:>12}", model.name, Size(model.expert_bytes).to_string());
        let rest = match &model.outcome {
            Outcome::DoesNotFit { needed_bytes } => {
                format!("   does not fit: it needs {} of memory at least", Size(*needed_bytes))
            }
            Outcome::Fits(fit) => columns(fit),
        };
        out.line(&(start + &rest));
    }
}

fn columns(fit: &Fit) -> String {
    let Some(p) = &fit.prediction else { return "   fits".into() };
    let Prediction { hit_rate, decode_tok_s, prefill_tok_s, first_token_s, .. } = p;
    format!(
        "{:>6.0} %   {:<20}{:<20}{:<20}{}",
        100.0 * hit_rate,
        with_range(decode_tok_s),
        with_range(prefill_tok_s),
        with_range(first_token_s),
        if p.decode_limit == Limit::Drive { "drive" } else { "processor" },
    )
}

/// `4.4  3.6 to 5.2`, the figures below each other.
fn with_range(band: &Band) -> String {
    format!("{:>4}  {} to {}", figure(band.likely), figure(band.low), figure(band.high))
}

fn limit(limit: Limit) -> String {
    match limit {
        Limit::Drive => "the drive is the limit".into(),
        Limit::Processor => "the processor is the limit".into(),
    }
}

/// Two digits or more.
fn figure(value: f64) -> String {
    match value {
        9.95.. => format!("{value:.0}"),
        0.995.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Text of titles and rows.
#[derive(Default)]
pub(super) struct Lines(String);

impl Lines {
    pub(super) fn text(self) -> String {
        self.0
    }

    pub(super) fn line(&mut self, text: &str) {
        self.push(format_args!("  {}\n", text.trim_end()));
    }

    pub(super) fn title(&mut self, text: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        self.push(format_args!("{gap}{text}\n"));
    }

    pub(super) fn row(&mut self, name: &str, text: &str) {
        self.line(&format!("{name:<12}{text}"));
    }

    /// Words that go on below themselves.
    fn wrapped(&mut self, mark: &str, text: &str) {
        let mut line = mark.to_owned();
        for word in text.split(' ') {
            if WIDTH < line.chars().count() + 1 + word.chars().count() + 2 {
                self.line(&line);
                line = " ".repeat(mark.len());
            }
            let gap = if line.trim_end().is_empty() || line == mark { "" } else { " " };
            line = line + gap + word;
        }
        self.line(&line);
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("writing to a string cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use kernels::Cores;

    use super::*;
    use crate::doctor::gpu::Listed;
    use crate::doctor::{DriveRated, Machine, Rated, Setting};

    fn model(name: &str, budget: u64) -> Model {
        let band = |likely: f64| Band { low: likely * 0.8, likely, high: likely * 1.25 };
        let prediction = Prediction {
            hit_rate: 0.68,
            decode_tok_s: band(4.4),
            decode_limit: Limit::Drive,
            n_prompt: 512,
            prefill_tok_s: band(123.0),
            prefill_limit: Limit::Processor,
            first_token_s: band(0.5),
        };
        let fit = Fit {
            budget_bytes: budget,
            dense_bytes: 1 << 30,
            n_slot: 3000,
            n_expert_record: 30_720,
            cache: "slots",
            prediction: Some(prediction),
        };
        Model { name: name.into(), expert_bytes: 200 << 30, outcome: Outcome::Fits(Box::new(fit)) }
    }

    fn report(models: Vec<Model>) -> Report {
        let setting = |depth| Setting { method: "threads", request_bytes: 7 << 20, depth, gb_s: 5.0 };
        let drive = DriveRated {
            request_bytes: 7 << 20,
            direct_gb_s: 5.1,
            buffered_gb_s: 3.0,
            page_cache_gb_s: 12.0,
            settings: (1..9).map(setting).collect(),
        };
        Report {
            machine: Machine {
                cpu: "A Processor".into(),
                instruction_set: "AVX2".into(),
                cores: Cores { n_cpu: 32, n_core: 24, n_fast: 8, quota: Some(12.5) },
                threads: 8,
                gpus: vec![Listed::example()],
                device: "cpu",
                memory: MemoryFacts { physical_bytes: 64 << 30, ..MemoryFacts::default() },
                drive: None,
            },
            measured: Rated {
                drive: Some(drive),
                ram_gb_s: Some(80.0),
                dense_gb_s: 60.0,
                experts_gb_s: 55.0,
                prefill_gflop_s: 900.0,
            },
            models,
            advice: vec!["drive: ".to_owned() + &"a long piece of advice ".repeat(12)],
        }
    }

    /// The report would not fit a terminal, or columns would run into each other.
    #[test]
    fn the_report_is_a_tidy_screen() {
        let lost = Model { outcome: Outcome::DoesNotFit { needed_bytes: 9 << 30 }, ..model("big", 0) };
        for models in
            [vec![model("a model", 6 << 30)], vec![model("one", 6 << 30), model("two", 6 << 30), lost]]
        {
            let n_model = models.len();
            let text = show(&report(models));
            assert!(text.lines().count() <= 40, "{text}");
            for line in text.lines() {
                assert!(line.chars().count() <= 120 && !line.ends_with(' '), "{line:?}\n{text}");
            }
            let wanted = if n_model == 1 {
                [
                    "3000 of 30720 in memory",
                    " 4.4 tok/s  3.5 to 5.5 ",
                    " 123 tok/s  98 to 154",
                    "0.50 s      0.40 to 0.62",
                ]
            } else {
                [
                    "one              200.00 GiB    68 %",
                    "  4.4  3.5 to 5.5 ",
                    "does not fit: it needs 9.00",
                    "drive\n",
                ]
            };
            for wanted in wanted {
                assert!(text.contains(wanted), "'{wanted}' in\n{text}");
            }
        }
    }
}
