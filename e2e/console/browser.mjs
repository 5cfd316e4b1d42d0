// The console in a real browser, on a real `mco up`: every page, a rollout watched live, a plan, logins, and
// accessibility. Run by e2e/console/run, which starts what this needs.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { contrast, focused, overflow, structure } from "./accessibility.mjs";
import { Browser } from "./webdriver.mjs";

const { MCO, DRIVER, DATA, SIMULATED, ARTEFACTS } = process.env;
const TAB = "\uE004";
const LARGEST_PAGE = 200 * 1024;

const CHRONY = readFileSync(new URL("../../examples/quickstart/50-worker-chrony.yaml", import.meta.url), "utf8");
const HOSTILE = `
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 60-hostile
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  config:
    ignition: {version: 3.5.0}
    storage:
      files:
      - path: "/etc/<script>document.title='owned'</script>"
        mode: 420
        contents: {source: "data:,%3Cscript%3Edocument.title%3D'owned'%3C%2Fscript%3E%1B%5B31m"}
`;

const say = (text) => process.stderr.write(`console: ${text}\n`);
const mco = (data, ...args) =>
  execFileSync(MCO, args, { env: { ...process.env, KUBECONFIG: join(data, "kubeconfig") }, encoding: "utf8", stdio: "pipe" });
const login = (data) => readFileSync(join(data, "console"), "utf8").trim();
const site = (data) => new URL(login(data)).origin;

/** Writes an object without kubectl: a server-side apply with the credentials of the kubeconfig. */
async function apply(data, yaml, name) {
  const kubeconfig = readFileSync(join(data, "kubeconfig"), "utf8");
  const field = (key) => kubeconfig.match(new RegExp(`${key}: ["']?([^"'\\s]+)`))[1];
  const decode = (key) => Buffer.from(field(key), "base64");
  const { request } = await import("node:https");
  const path = `/apis/machineconfiguration.openshift.io/v1/machineconfigs/${name}`;
  const options = {
    method: yaml ? "PATCH" : "DELETE",
    ca: decode("certificate-authority-data"), cert: decode("client-certificate-data"), key: decode("client-key-data"),
    headers: { "content-type": "application/apply-patch+yaml" },
  };
  const query = yaml ? "?fieldManager=e2e&force=true" : "";
  const [status, said] = await new Promise((resolve, reject) => {
    const sent = request(field("server") + path + query, options, (answer) => {
      let text = "";
      answer.on("data", (part) => (text += part));
      answer.on("end", () => resolve([answer.statusCode, text]));
    });
    sent.on("error", reject);
    sent.end(yaml ?? undefined);
  });
  assert.ok(status < 300, `${options.method} ${name}: ${status} ${said}`);
}

/** Pools do not exist from the first moment on. */
async function settled(browser, data) {
  await browser.until("the pools are updated", () => {
    try {
      for (const pool of ["master", "worker"]) mco(data, "wait", pool, "--timeout", "60s");
      return true;
    } catch {
      return false;
    }
  });
}

async function enter(browser, data) {
  await browser.go(login(data));
  await browser.until("the login leads to the pools", async () => (await browser.address()) === `${site(data)}/`);
}

async function quiet(browser, what) {
  assert.deepEqual(await browser.complaints(), [], `the browser complains on ${what}`);
}

/** Everything that must hold on any page. */
async function check(browser, data, path, name) {
  for (const scheme of ["light", "dark"]) {
    await browser.scheme(scheme);
    await browser.resize(1280, 900);
    await browser.go(site(data) + path);
    assert.deepEqual(await browser.run(structure), [], `${path}: structure`);
    assert.deepEqual(await browser.run(contrast), [], `${path}: contrast, ${scheme}`);
    await browser.screenshot(join(ARTEFACTS, `${name}-${scheme}.png`));
    await browser.resize(360, 780);
    assert.deepEqual(await browser.run(overflow), [], `${path}: on a phone`);
    await browser.screenshot(join(ARTEFACTS, `${name}-${scheme}-phone.png`));
  }
  const size = (await browser.run(() => document.documentElement.outerHTML.length));
  assert.ok(size < LARGEST_PAGE, `${path}: ${size} bytes`);
  await browser.resize(1280, 900);
  await browser.scheme("light");
  await quiet(browser, path);
}

async function logins(browser) {
  await browser.go(`${site(DATA)}/pools/worker`);
  assert.equal(await browser.address(), `${site(DATA)}/login`, "every page requires a login");
  await check(browser, DATA, "/login", "login");
  await browser.type("#token", "not-a-token");
  await browser.click("main button");
  await browser.until("the rejection is shown", async () => /not a token that the cluster accepts/.test(await browser.text("[role=alert]")));
  // The browser logs a page with status 403; no other error is allowed.
  for (const complaint of await browser.complaints()) assert.match(complaint, /403/);
  const used = login(DATA);
  await enter(browser, DATA);
  assert.notEqual(login(DATA), used, "the next login has another address");
  await browser.go(used);
  assert.match(await browser.text("[role=alert]"), /used already/);
  for (const complaint of await browser.complaints()) assert.match(complaint, /403/);
  await browser.go(`${site(DATA)}/`);
}

async function keyboard(browser) {
  await browser.go(`${site(DATA)}/`);
  const way = [];
  for (let step = 0; step < 9; step++) {
    await browser.press(TAB);
    const at = await browser.run(focused);
    assert.ok(at.visible, `the focus is seen on ${at.text}`);
    way.push(at.text);
  }
  assert.deepEqual(way.slice(0, 9), ["Skip to the contents", "mco", "Pools", "Policies", "Configs", "Plan", "Search", "Log out", "master"]);
}

async function rollout(browser) {
  await browser.go(`${site(DATA)}/pools/worker`);
  await browser.until("the page is live", async () => (await browser.text("#live")) === "Live");
  // Survives an update in place, but not a reload. A rollout may be faster than our polling, so the page itself
  // records what it showed.
  await browser.run(() => {
    window.kept = true;
    window.shown = [];
    const look = () => window.shown.push({
      badge: document.querySelector(".title .badge").innerText.trim(),
      running: document.querySelectorAll("td.st.running").length,
      done: [...document.querySelectorAll("td.st:last-child")].filter((cell) => cell.matches(".done")).length,
      target: document.querySelector(".foot a").innerText,
    });
    look();
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
    document.querySelector("main a[href='/nodes/worker-0']").focus();
  });
  const before = mco(DATA, "status", "worker", "-o", "json");
  await apply(DATA, CHRONY, "50-worker-chrony");
  let pictured = false;
  await browser.until("all nodes have the new config", async () => {
    const state = await browser.run(() => window.shown.at(-1));
    if (!pictured && state.badge === "Updating" && (state.running > 0 || state.done > 0)) {
      pictured = true;
      await browser.screenshot(join(ARTEFACTS, "rollout-light.png"));
      await browser.scheme("dark");
      await browser.screenshot(join(ARTEFACTS, "rollout-dark.png"));
      await browser.scheme("light");
    }
    return state.badge === "Updated" && !before.includes(state.target);
  });
  const shown = await browser.run(() => window.shown);
  const onTheWay = shown.filter((state) => state.badge === "Updating");
  assert.ok(onTheWay.some((state) => state.running > 0 || state.done > 0), "the rollout was seen while it went");
  assert.equal(await browser.run(() => window.kept), true, "without loading the page again");
  assert.equal((await browser.run(focused)).text, "worker-0", "and the focus stayed");
  await quiet(browser, "a rollout");
}

async function planning(browser) {
  await browser.go(`${site(DATA)}/plan`);
  await browser.type("#yaml", CHRONY.replaceAll("2.pool.ntp.example", "3.pool.ntp.example"));
  await browser.click("input[name=contents]");
  await browser.click("form.stack button");
  await browser.until("the plan is there", async () => /Cost: /.test(await browser.text("main")));
  const page = await browser.text("main");
  writeFileSync(join(ARTEFACTS, "changed.yaml"), CHRONY.replaceAll("2.pool.ntp.example", "3.pool.ntp.example"));
  let plan = "";
  try {
    plan = mco(DATA, "plan", "-f", join(ARTEFACTS, "changed.yaml"));
  } catch (changes) {
    assert.equal(changes.status, 3, changes.stderr);
    plan = changes.stdout;
  }
  const next = plan.match(/pool worker: \S+ -> (rendered-worker-[0-9a-f]+)/)[1];
  assert.ok(page.includes(next), `the page foretells ${next} as mco plan does`);
  assert.match(page, /\+ pool 3\.pool\.ntp\.example iburst/);
  assert.match(page, /Cost: reboot/);
  assert.match(page, /3 nodes in 3 waves/);
  assert.deepEqual(await browser.run(structure), [], "structure of a plan");
  assert.deepEqual(await browser.run(contrast), [], "contrast of a plan");
  await browser.resize(1280, 1700);
  await browser.screenshot(join(ARTEFACTS, "plan-answer-light.png"));
  await browser.resize(1280, 900);
  await quiet(browser, "a plan");
}

async function drift(browser) {
  const file = join(DATA, "nodes/worker-1/etc/chrony.conf");
  const right = readFileSync(file);
  await browser.go(`${site(DATA)}/nodes/worker-1`);
  await browser.until("the page is live", async () => (await browser.text("#live")) === "Live");
  writeFileSync(file, "edited by hand\n");
  await browser.until("the node page says what is wrong", async () => (await browser.text("main")).includes("A node has drifted from its config"));
  const page = await browser.text("main");
  assert.match(page, /content mismatch for file "\/etc\/chrony.conf"/);
  assert.match(page, /restore the file/);
  // Events are written in the background, after the node's state.
  await browser.until("the event is listed", async () => {
    await browser.go(`${site(DATA)}/nodes/worker-1`);
    return (await browser.text("main")).includes("ConfigDriftDetected");
  });
  await check(browser, DATA, "/nodes/worker-1", "node-degraded");
  await check(browser, DATA, "/", "overview-degraded");
  await browser.go(`${site(DATA)}/nodes/worker-1`);
  writeFileSync(file, right);
  await browser.until("it recovers", async () => (await browser.text(".title .badge")) === "Updated");
}

async function steering(browser) {
  await browser.go(`${site(DATA)}/pools/worker`);
  await browser.click("form.push button");
  await browser.until("it can be resumed", async () => (await browser.text("form.push button")) === "Resume updates");
  await browser.click("form.push button");
  await browser.until("it can be paused", async () => (await browser.text("form.push button")) === "Pause updates");
  await quiet(browser, "pausing");
}

async function hostile(browser) {
  await apply(DATA, HOSTILE, "60-hostile");
  await browser.go(`${site(DATA)}/search?q=script`);
  await browser.until("the search finds it", async () => {
    await browser.go(`${site(DATA)}/search?q=script`);
    return (await browser.text("main")).includes("60-hostile");
  });
  for (const path of ["/", "/pools/worker", "/configs", "/configs/60-hostile?contents=1", "/search?q=%3Cscript%3E", "/nodes/worker-1?contents=1"]) {
    await browser.go(site(DATA) + path);
    assert.doesNotMatch(await browser.run(() => document.title), /owned/);
    assert.equal(await browser.run(() => document.querySelectorAll("script:not([src^='/static/'])").length), 0);
    await quiet(browser, path);
  }
  await apply(DATA, null, "60-hostile");
}

async function withoutScript(browser) {
  await browser.chromium("Emulation.setScriptExecutionDisabled", { value: true });
  await browser.go(`${site(DATA)}/pools/worker`);
  assert.match(await browser.text("main"), /worker-0/);
  await browser.click("a[href='/nodes/worker-0']");
  assert.equal(await browser.address(), `${site(DATA)}/nodes/worker-0`);
  await browser.chromium("Emulation.setScriptExecutionDisabled", { value: false });
}

/** The latency from a change in the cluster to the page, while a thousand nodes change. Only reported: machines differ. */
async function latency(browser) {
  const times = [];
  for (let round = 0; round < 10; round++) {
    const [verb, label] = round % 2 ? ["resume", "Pause updates"] : ["pause", "Resume updates"];
    mco(SIMULATED, "rollout", verb, "worker");
    const written = performance.now();
    await browser.until(`the page says ${label}`, async () => (await browser.text("form.push button")) === label);
    times.push(performance.now() - written);
  }
  times.sort((a, b) => a - b);
  say(`a change is seen ${times[5].toFixed(0)} ms after it was written, ${times.at(-1).toFixed(0)} ms at most`);
}

async function large(browser) {
  await settled(browser, SIMULATED);
  await enter(browser, SIMULATED);
  await browser.go(`${site(SIMULATED)}/pools/worker`);
  await browser.until("the page is live", async () => (await browser.text("#live")) === "Live");
  await apply(SIMULATED, CHRONY, "50-worker-chrony");
  await browser.run(() => {
    window.seen = [];
    new MutationObserver(() => window.seen.push(performance.now())).observe(document.querySelector("main"), { subtree: true, childList: true, characterData: true, attributes: true });
  });
  await browser.until("many nodes move", async () => (await browser.text("main")).match(/Updating\s+[1-9]/));
  await new Promise((resolve) => setTimeout(resolve, 8000));
  const seen = await browser.run(() => window.seen);
  const pages = await browser.run(() => performance.getEntriesByType("resource").filter((entry) => entry.initiatorType === "fetch").map((entry) => [entry.duration, entry.decodedBodySize]));
  const [slowest, largest] = [0, 1].map((part) => Math.max(...pages.map((page) => page[part])));
  say(`a thousand nodes: ${seen.length} changes seen, slowest page ${slowest.toFixed(0)} ms, largest ${largest} bytes`);
  assert.ok(seen.length > 0, "the rollout was seen while it went");
  assert.ok(largest < LARGEST_PAGE, `an update has ${largest} bytes`);
  await latency(browser);
  await check(browser, SIMULATED, "/pools/worker", "thousand");
  await check(browser, SIMULATED, "/", "thousand-overview");
}

const browser = await Browser.open(DRIVER);
const stories = { logins, keyboard, rollout, planning, drift, steering, hostile, withoutScript, large };
let story = "";
try {
  await browser.resize(1280, 900);
  await settled(browser, DATA);
  for (story of Object.keys(stories)) {
    say(story);
    await stories[story](browser);
    if (story === "rollout") {
      const pages = [["/", "overview"], ["/pools/worker", "pool"], ["/nodes/worker-0", "node"],
        ["/configs", "configs"], ["/policies", "policies"],
        ["/configs/50-worker-chrony?contents=1", "config"], ["/plan", "plan"], ["/search?q=/etc/chrony.conf", "search"]];
      for (const [path, name] of pages) await check(browser, DATA, path, name);
    }
  }
  say("every page, live, in light and dark, on a desk and on a phone: as it should be");
} catch (error) {
  await browser.screenshot(join(ARTEFACTS, "failed.png")).catch(() => {});
  say(`error: ${story}: ${error.stack}`);
  process.exitCode = 1;
} finally {
  await browser.close();
}
