// Live updates: on a server-sent event the page is fetched again and only the elements that differ are replaced, so that
// focus, selection and scroll position are kept. Without this script, a reload shows the same.
"use strict";
(() => {
  const main = document.querySelector("main[data-live]");
  const status = document.getElementById("live");
  if (!main || !status || !("EventSource" in window)) return;

  // Durations such as "for 3m" change without an event.
  const STALE = 15000;
  let source = null;
  let busy = false;
  let again = false;
  let last = Date.now();

  const say = (text) => {
    if (status.textContent !== text) status.textContent = text;
  };

  const attributes = (old, fresh) => {
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
  };

  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");

  const exchange = (old, fresh) => {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    attributes(old, fresh);
    const kept = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
    let at = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      const known = child.id ? kept.get(child.id) : null;
      if (known && known !== at) {
        old.insertBefore(known, at);
        at = known;
      }
      if (at && alike(at, child)) {
        exchange(at, child);
        at = at.nextSibling;
      } else {
        old.insertBefore(document.importNode(child, true), at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  };

  const refresh = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { "X-Requested-With": "console" }, cache: "no-store" });
      if (answer.status === 401 || (answer.redirected && new URL(answer.url).pathname === "/login")) {
        location.assign("/login");
        return;
      }
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        const part = fresh.querySelector("main[data-live]");
        if (part) {
          const focus = document.activeElement;
          exchange(main, part);
          // Rows that moved have lost the focus.
          if (focus !== document.activeElement && focus.isConnected) focus.focus({ preventScroll: true });
          document.title = fresh.title;
          last = Date.now();
          say("Live");
        }
      }
    } catch {
      say("The console does not answer; trying again.");
    } finally {
      busy = false;
    }
    if (again) {
      again = false;
      refresh();
    }
  };

  const open = () => {
    if (source) return;
    source = new EventSource("/live");
    source.addEventListener("open", () => say("Live"));
    source.addEventListener("change", refresh);
    source.addEventListener("error", () => {
      say("The console does not answer; trying again.");
      if (source.readyState === EventSource.CLOSED) close();
    });
  };

  const close = () => {
    if (source) source.close();
    source = null;
  };

  // A hidden tab needs no updates, and browsers limit the connections to one server.
  const look = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", close);
  addEventListener("pageshow", look);
  setInterval(() => {
    if (document.hidden) return;
    open();
    if (Date.now() - last > STALE) refresh();
  }, 5000);
  look();
})();
