// SPDX-License-Identifier: GPL-2.0-or-later
// Looks at souk-web's pages in a headless Chromium. Reads one JSON text on stdin: {link, pages,
// widths, schemes, pictures, own, still}. Writes what it found as JSON: for each page, width and colour
// scheme the rules of accessibility that are broken (axe-core), how far the page is wider than the
// window, and errors in the browser's console; then what the keyboard did. With `own` it looks at
// "/login", logs in with the token that the caller writes at "token" (one holds for two minutes), and
// looks at these pages as that user. Without `still` it waits until a row of a job has come to the
// open board by itself: the caller submits it at "watching" and writes its number.
// With `still` the pages are files that do not change: they are looked at, and that is all.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const require = createRequire(process.env.SOUK_WEB_MODULES + "/");
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const wanted = JSON.parse((await lines.next()).value);
const browser = await chromium.launch({
  executablePath: process.env.SOUK_CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage"],
});
const found = { looks: [], keyboard: {}, errors: [] };

async function open(width, scheme, storageState) {
  const context = await browser.newContext({
    viewport: { width, height: 800 }, colorScheme: scheme, bypassCSP: false, storageState,
  });
  const page = await context.newPage();
  page.on("console", (m) => { if (m.type() === "error") found.errors.push(m.text()); });
  page.on("pageerror", (e) => found.errors.push(String(e)));
  page.on("dialog", (d) => { found.errors.push("dialog " + d.message()); d.dismiss(); });
  await page.goto(wanted.link);
  return page;
}

// The policy of the page lets no script in: axe comes by the debugger's own door.
async function broken(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: axe });
  const { result } = await session.send("Runtime.evaluate", {
    expression: "axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify(" +
      "r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.target.join(' ')).join(', '))))",
    awaitPromise: true, returnByValue: true,
  });
  return JSON.parse(result.value);
}

// A page that has no script stays as it is.
async function settled(page) {
  await page.waitForFunction(() => !document.querySelector("script[src='/page.js']") ||
    document.getElementById("live").textContent === "live");
}

async function look(pages, storageState) {
  for (const width of wanted.widths)
    for (const scheme of wanted.schemes) {
      const page = await open(width, scheme, storageState);
      for (const [name, path] of Object.entries(pages)) {
        await page.goto(new URL(path, wanted.link).href);
        if (!wanted.still) await settled(page);
        const wider = await page.evaluate(
          () => document.scrollingElement.scrollWidth - window.innerWidth);
        found.looks.push({ name, width, scheme, wider, broken: await broken(page) });
        if (wanted.pictures)
          await page.screenshot({ path: `${wanted.pictures}/${name}-${width}-${scheme}.png` });
      }
      await page.context().close();
    }
}

await look(wanted.pages);
if (wanted.own) {
  await look({ login: "/login" });
  const page = await open(1024, "light");
  await page.goto(new URL("/login", wanted.link).href);
  process.stdout.write("token\n");
  await page.fill("input[name=token]", (await lines.next()).value);
  await page.keyboard.press("Enter");
  await page.waitForSelector("form.who");
  await look(wanted.own, await page.context().storageState());
  await page.context().close();
}

if (wanted.still) {
  process.stdout.write(JSON.stringify(found) + "\n");
  await browser.close();
  process.exit(0);
}
const page = await open(1024, "light");
await page.keyboard.press("Tab");
found.keyboard.first = await page.evaluate(() => document.activeElement.textContent);
await page.keyboard.press("Enter");
found.keyboard.skipped_to = await page.evaluate(() => document.activeElement.id);
await page.keyboard.press("j");
found.keyboard.row = await page.evaluate(() => document.activeElement.textContent);
await page.evaluate(() => { window.notLoadedAnew = true; });
process.stdout.write("watching\n");
const job = (await lines.next()).value;
await page.waitForSelector(`a[href="/job/${job}"]`, { timeout: 60000 });
found.keyboard.kept = await page.evaluate(
  () => window.notLoadedAnew && document.activeElement.closest("tr") !== null);
await page.goto(new URL("/nodes", wanted.link).href);
await page.keyboard.press("/");
found.keyboard.search = await page.evaluate(() => document.activeElement.name);
await page.keyboard.type("2");
await page.keyboard.press("Enter");
await page.waitForURL(/match=2/);
found.keyboard.found = await page.evaluate(
  () => [...document.querySelectorAll("tbody tr td:first-child a")].map((a) => a.textContent));
await browser.close();
process.stdout.write(JSON.stringify(found) + "\n", () => process.exit(0));
