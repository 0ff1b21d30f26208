// The line below the message field: how far the prompt is read, speeds, cache and context.

import { secondsLeft } from "./answer.js";
import { byId, h } from "./dom.js";

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

// null: none is being read.
export function showProgress(progress) {
  const isShown = progress !== null && progress.total > 0;
  byId("progress").hidden = !isShown;
  if (!isShown) return;
  const share = Math.min(1, progress.processed / progress.total);
  byId("progress-bar").value = share;
  byId("progress-text").textContent = progressText(progress, share);
}

// A line instead of the figures while something is waited for.
export function showWaiting(text) {
  byId("progress").hidden = text === null;
  byId("progress-bar").removeAttribute("value");
  byId("progress-text").textContent = text ?? "";
}

function progressText(progress, share) {
  const percent = `Reading the prompt: ${Math.floor(share * 100)} %`;
  const left = secondsLeft(progress);
  return left === null ? percent : `${percent}, ${duration(left)} left`;
}

export function showFigures(timings) {
  byId("figures").replaceChildren(...(timings ? figures(timings) : []));
}

function figures(timings) {
  const { predicted_per_second, hit_rate, read_gb_s, n_ctx, n_ctx_used } = timings;
  const context = known(n_ctx_used) && known(n_ctx) && n_ctx > 0;
  return [
    known(predicted_per_second) && figure("Speed", `${short.format(predicted_per_second)} tok/s`),
    known(hit_rate) && figure("Cache hits", `${Math.round(hit_rate * 100)} %`),
    known(read_gb_s) && figure("Drive", `${short.format(read_gb_s)} GB/s`),
    context && figure("Context", `${whole.format(n_ctx_used)} of ${whole.format(n_ctx)}`, n_ctx_used / n_ctx > 0.9),
  ].filter((element) => element);
}

function figure(name, value, isHigh = false) {
  return h("div", isHigh ? { class: "high" } : {}, h("dt", {}, name), h("dd", {}, value));
}

const known = (value) => typeof value === "number" && Number.isFinite(value);

// Below an answer.
export function summary(timings) {
  if (!timings) return "";
  const { predicted_n, predicted_per_second, prompt_n, cache_n } = timings;
  return [
    known(predicted_n) && `${whole.format(predicted_n)} tokens`,
    known(predicted_per_second) && `${short.format(predicted_per_second)} tok/s`,
    known(prompt_n) && promptText(prompt_n, cache_n, timings),
  ]
    .filter((part) => part)
    .join(" · ");
}

// What of the prompt was there, and why it is not more.
const missed = {
  off: "nothing is kept",
  empty: "nothing was kept yet",
  differs: "it differs from what is kept",
  evicted: "what was kept had to go",
  damaged: "what was kept cannot be read",
};

function promptText(prompt_n, cache_n, { cache_missed }) {
  const all = whole.format(prompt_n + (cache_n ?? 0));
  const why = missed[cache_missed] ? ` (${missed[cache_missed]})` : "";
  return cache_n ? `prompt: ${whole.format(cache_n)} of ${all} from cache${why}` : `prompt ${all}${why}`;
}

export function duration(seconds) {
  if (seconds < 1) return "less than 1 s";
  if (seconds < 10) return `${short.format(seconds)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return `${Math.round(seconds / 60)} min`;
}
