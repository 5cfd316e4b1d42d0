// The subset of WebDriver that the browser tests need, over Node's built-in HTTP client.

import { writeFile } from "node:fs/promises";

const ELEMENT = "element-6066-11e4-a52e-4f735466cecf";

/** Nothing here takes a tenth of it, but test machines are busy. */
export const DEADLINE = 60_000;

export class Browser {
  constructor(server, id) {
    this.url = `${server}/session/${id}`;
  }

  static async open(server, { dark = false } = {}) {
    const args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
      "--force-device-scale-factor=1", `--window-size=1280,900`];
    if (dark) args.push("--force-dark-mode", "--blink-settings=preferredColorScheme=0");
    const wanted = { browserName: "chrome", "goog:chromeOptions": { args }, "goog:loggingPrefs": { browser: "ALL" } };
    const value = await call("POST", `${server}/session`, { capabilities: { alwaysMatch: wanted } });
    return new Browser(server, value.sessionId);
  }

  close() {
    return call("DELETE", this.url);
  }

  go(url) {
    return call("POST", `${this.url}/url`, { url });
  }

  address() {
    return call("GET", `${this.url}/url`);
  }

  /** Runs a function in the page and returns what it returns. */
  run(script, ...args) {
    return call("POST", `${this.url}/execute/sync`, { script: `return (${script})(...arguments)`, args });
  }

  /** Chromium's own protocol, for what WebDriver has no words for. */
  chromium(cmd, params = {}) {
    return call("POST", `${this.url}/goog/cdp/execute`, { cmd, params });
  }

  async find(selector) {
    const found = await call("POST", `${this.url}/element`, { using: "css selector", value: selector });
    return found[ELEMENT];
  }

  async type(selector, text) {
    const element = await this.find(selector);
    await call("POST", `${this.url}/element/${element}/clear`, {});
    await call("POST", `${this.url}/element/${element}/value`, { text });
  }

  async click(selector) {
    await call("POST", `${this.url}/element/${await this.find(selector)}/click`, {});
  }

  async press(key) {
    const actions = [{ type: "keyDown", value: key }, { type: "keyUp", value: key }];
    await call("POST", `${this.url}/actions`, { actions: [{ type: "key", id: "keyboard", actions }] });
  }

  text(selector) {
    return this.run((selector) => document.querySelector(selector)?.innerText ?? "", selector);
  }

  async resize(width, height) {
    await this.chromium("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 });
  }

  async scheme(value) {
    await this.chromium("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
  }

  /** What the page has complained about since the last time. */
  async complaints() {
    const log = await call("POST", `${this.url}/se/log`, { type: "browser" });
    return log.filter((entry) => ["SEVERE", "WARNING"].includes(entry.level)).map((entry) => entry.message);
  }

  async screenshot(path) {
    await writeFile(path, Buffer.from(await call("GET", `${this.url}/screenshot`), "base64"));
  }

  /** Waits until a function gives something, and says what it waited for if it does not. */
  async until(what, check, deadline = DEADLINE) {
    const end = Date.now() + deadline;
    for (;;) {
      const found = await check();
      if (found) return found;
      if (Date.now() > end) throw new Error(`timeout while waiting until ${what}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

async function call(method, url, body) {
  const answer = await fetch(url, { method, body: body && JSON.stringify(body), signal: AbortSignal.timeout(DEADLINE) });
  const { value } = await answer.json();
  if (!answer.ok) throw new Error(`${method} ${url}: ${value?.message ?? answer.status}`);
  return value;
}
