// The page's only script: asks for a decision and shows it as a bar and as JSON.
"use strict";

const byId = (id) => document.getElementById(id);
const form = byId("form"), bar = byId("bar"), level = byId("level");
const verdict = byId("verdict"), answer = byId("answer"), copy = byId("copy");
const maxTimer = 2 ** 31 - 1; // longer timers fire at once
let refill = 0; // the timer that looks again when a window has passed

form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask({ policy: form.policy.value, key: form.key.value, cost: form.cost.valueAsNumber });
});

async function ask(check) {
  clearTimeout(refill);
  try {
    const response = await fetch("/v1/check", { method: "POST", body: JSON.stringify(check) });
    const body = await response.json();
    if (response.ok) show(body, check); else fail(body.detail);
  } catch {
    fail("weir does not answer. Is it still running?");
  }
}

function show(d, check) {
  tell(sentence(d), !d.allowed);
  answer.hidden = false;
  answer.textContent = JSON.stringify(d, null, 2);
  bar.setAttribute("aria-valuemax", d.limit);
  bar.setAttribute("aria-valuenow", d.remaining);
  drain(d.limit > 0 ? Math.max(0, d.remaining / d.limit) : 0);
  if (d.reset_after_ms <= 0) return;
  if (form.policy.selectedOptions[0].dataset.steady === "true") {
    fill(d.reset_after_ms);
  } else if (d.reset_after_ms <= maxTimer) {
    refill = setTimeout(ask, d.reset_after_ms, { ...check, cost: 0, peek: true });
  }
}

function sentence(d) {
  if (d.allowed) return `Admitted. ${d.remaining} of ${d.limit} remain.`;
  if (d.retry_after_ms < 0) return `Refused (${d.reason}). Waiting cannot help.`;
  return `Refused by ${d.limited_by} (${d.reason}). Retry in ${d.retry_after_ms} ms.`;
}

function tell(text, refused) {
  verdict.textContent = text;
  verdict.classList.toggle("refused", refused);
  bar.classList.toggle("refused", refused);
}

function fail(text) {
  tell(text, true);
  answer.hidden = true;
}

function drain(share) {
  level.style.transition = "none";
  level.style.transform = `scaleX(${share})`;
  level.getBoundingClientRect(); // lets the drained level be drawn before it refills
}

function fill(ms) {
  level.style.transition = `transform ${ms}ms linear`;
  level.style.transform = "scaleX(1)";
}

if (navigator.clipboard) {
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(byId("command").textContent);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Select it";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  });
}
