// Accessibility checks. These functions run inside the page and return the violations.

/** Landmarks, names, headings and labels. */
export function structure() {
  const wrong = [];
  const shown = (element) => element.getClientRects().length > 0;
  const name = (element) => {
    const by = element.getAttribute("aria-labelledby");
    const labels = element.labels ? [...element.labels].map((label) => label.innerText) : [];
    const images = [...element.querySelectorAll("img[alt]")].map((image) => image.alt);
    return [element.getAttribute("aria-label"), by && document.getElementById(by)?.innerText, ...labels, element.innerText, ...images]
      .filter(Boolean).join(" ").trim();
  };
  const one = (selector) => {
    const number = document.querySelectorAll(selector).length;
    if (number !== 1) wrong.push(`${number} × ${selector}`);
  };
  ["main", "h1", "header.top", "footer", "a.skip", "html[lang]", "title"].forEach(one);
  for (const element of document.querySelectorAll("a[href], button, input:not([type=hidden]), textarea, nav, [role=img], article, section, form[role=search]")) {
    if (!shown(element) && !element.matches("a.skip")) continue;
    const named = element.matches("form[role=search]") || name(element);
    if (!named) wrong.push(`no name: ${element.outerHTML.slice(0, 120)}`);
  }
  for (const image of document.querySelectorAll("img:not([alt])")) wrong.push(`no alt: ${image.outerHTML}`);
  for (const svg of document.querySelectorAll("svg:not([aria-hidden=true]):not([role=img])")) {
    wrong.push(`neither hidden nor named: ${svg.outerHTML.slice(0, 120)}`);
  }
  let level = 0;
  for (const heading of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1) wrong.push(`${heading.tagName} "${heading.innerText}" after h${level}`);
    level = own;
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of ids.filter((id, index) => ids.indexOf(id) !== index)) wrong.push(`id ${id} twice`);
  for (const use of document.querySelectorAll("use")) {
    if (!document.querySelector(use.getAttribute("href"))) wrong.push(`no symbol ${use.getAttribute("href")}`);
  }
  for (const table of document.querySelectorAll("table")) {
    if (!table.querySelector("th[scope=col]") || !table.querySelector("th[scope=row]")) wrong.push("a table without headings");
  }
  return wrong;
}

/** Text must stand out from what is behind it: 4.5 to 1, or 3 to 1 where it is large. */
export function contrast() {
  const parse = (colour) => {
    const numbers = colour.match(/[\d.]+/g).map(Number);
    return { r: numbers[0], g: numbers[1], b: numbers[2], a: numbers[3] ?? 1 };
  };
  const over = (top, below) => ({
    r: top.r * top.a + below.r * (1 - top.a), g: top.g * top.a + below.g * (1 - top.a), b: top.b * top.a + below.b * (1 - top.a), a: 1,
  });
  const light = ({ r, g, b }) => {
    const part = (value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), { r: 255, g: 255, b: 255, a: 1 });
  };
  const wrong = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element.getClientRects().length || element.closest(".vh, .skip, script, title")) continue;
    const style = getComputedStyle(element);
    const back = behind(element);
    const [a, b] = [light(over(parse(style.color), back)), light(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) wrong.push(`${ratio.toFixed(2)}: "${text.slice(0, 40)}" in ${element.className || element.tagName}`);
  }
  return [...new Set(wrong)];
}

/** Nothing may stick out to the right. */
export function overflow() {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const out = [...document.querySelectorAll("body *")].filter((element) => element.getBoundingClientRect().right > width + 1);
  return [`${document.documentElement.scrollWidth} wide`, ...out.slice(0, 5).map((element) => element.outerHTML.slice(0, 100))];
}

/** The element with the focus, and whether one sees that it has it. */
export function focused() {
  const element = document.activeElement;
  const style = getComputedStyle(element);
  return {
    tag: element.tagName,
    text: (element.innerText || element.name || element.id || "").trim(),
    visible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
  };
}
