// draw.mjs PROMETHEUS DATA OUT: pictures of all dashboards, OUT/NAME-dark.png and OUT/NAME-light.png, over all that DATA has.
// PROMETHEUS is the program, and DATA a directory of its data, as `YURTLAB_SERIES=DATA yurtlab run dashboards` leaves it.
// Variables have the first value that there is.
import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import * as esbuild from 'esbuild';

const here = import.meta.dirname;
const dashboards = path.join(here, '..', '..', '..', 'deploy', 'dashboards');
const browser = ['chromium-headless-shell', 'chromium', 'google-chrome']
  .flatMap((name) => process.env.PATH.split(path.delimiter).map((dir) => path.join(dir, name)))
  .find((file) => fs.existsSync(file));
const width = 1400; // CSS pixels
const points = 300; // of a line
const address = '127.0.0.1:29090';
const [program, series, out] = process.argv.slice(2);
if (!out) throw new Error('usage: node draw.mjs PROMETHEUS DATA OUT');

async function ask(what, parameters) {
  const answer = await (await fetch(`http://${address}/api/v1/${what}?${new URLSearchParams(parameters)}`)).json();
  if (answer.status !== 'success') throw new Error(`${what} ${JSON.stringify(parameters)}: ${answer.error}`);
  return answer.data;
}

// span returns when the first and the last samples of our programs are, in seconds since 1970.
async function span() {
  const now = Math.floor(Date.now() / 1000);
  const query = 'max(timestamp({__name__=~".+_build_info"}))';
  const { result } = await ask('query_range', { query, start: now - 86400, end: now, step: 15 });
  if (result.length === 0) throw new Error(`${series} has nothing of the last day`);
  const times = result[0].values.map((v) => Math.floor(v[1]));
  return [times[0], times.at(-1)];
}

// serve starts Prometheus, which reads what there is and scrapes nothing.
async function serve(work) {
  const config = path.join(work, 'prometheus.yaml');
  fs.writeFileSync(config, '{}');
  const server = spawn(program, [`--config.file=${config}`, `--storage.tsdb.path=${series}`, '--storage.tsdb.retention.time=10y',
    `--web.listen-address=${address}`], { stdio: 'ignore' });
  const deadline = Date.now() + 60_000;
  for (;;) {
    if (server.exitCode !== null) throw new Error(`${program} ended: ${server.exitCode}`);
    const ready = await fetch(`http://${address}/-/ready`).catch(() => undefined);
    if (ready?.ok) return server;
    if (Date.now() > deadline) { server.kill(); throw new Error(`${program} is not ready`); }
    await new Promise((resolve) => { setTimeout(resolve, 200); });
  }
}

// variables returns the first value of each variable that is asked for by label_values(METRIC, LABEL).
async function variables(dashboard, from, to) {
  const values = { __rate_interval: '30s' };
  for (const v of dashboard.templating.list.filter((v) => v.type === 'query')) {
    const [, metric, label] = /^label_values\((\w+), (\w+)\)$/.exec(v.query.query);
    const series = await ask('series', { 'match[]': metric, start: from, end: to });
    if (series.length === 0) throw new Error(`${dashboard.title}: there is no ${metric}`);
    values[v.name] = series.map((s) => s[label]).sort()[0];
  }
  return values;
}

// answers returns the series of each query of each panel, by the panel's id. What there is no value for is null.
async function answers(dashboard, from, to) {
  const values = await variables(dashboard, from, to);
  const step = Math.max(1, Math.round((to - from) / points));
  const data = {};
  for (const panel of dashboard.panels) {
    data[panel.id] = [];
    for (const target of panel.targets ?? []) {
      const query = target.expr.replace(/\$(\w+)/g, (_, name) => values[name]);
      if (target.instant) {
        const { result } = await ask('query', { query, time: to });
        data[panel.id].push(result.map((s) => ({ metric: s.metric, values: [s.value] })));
        continue;
      }
      const { result } = await ask('query_range', { query, start: from, end: to, step });
      data[panel.id].push(result.map((s) => {
        const at = new Map(s.values);
        return { metric: s.metric, values: Array.from({ length: points + 1 }, (_, i) => from + i * step)
          .map((t) => [t, at.get(t) ?? null]) };
      }));
    }
  }
  return data;
}

if (!browser) throw new Error('no Chromium is installed');
const work = fs.mkdtempSync(path.join(os.tmpdir(), 'draw-'));
let server;
try {
  server = await serve(work);
  await esbuild.build({
    entryPoints: [path.join(here, 'page.jsx')], outfile: path.join(work, 'page.js'), bundle: true, format: 'iife',
    jsx: 'automatic',
    alias: { 'react-custom-scrollbars-2': path.join(here, 'scrollbars.js') }, logLevel: 'error',
    loader: { '.svg': 'dataurl', '.png': 'dataurl', '.woff2': 'dataurl', '.ttf': 'dataurl' },
    define: { 'process.env.NODE_ENV': '"production"', global: 'window' },
  });
  fs.mkdirSync(out, { recursive: true });
  const [from, to] = await span();
  for (const name of fs.readdirSync(dashboards).filter((f) => f.endsWith('.json')).map((f) => path.basename(f, '.json'))) {
    const dashboard = JSON.parse(fs.readFileSync(path.join(dashboards, `${name}.json`), 'utf8'));
    const data = await answers(dashboard, from, to);
    for (const mode of ['dark', 'light']) {
      const input = JSON.stringify({ dashboard, data, from, to, width, mode }).replaceAll('<', '\\u003c');
      const page = path.join(work, `${name}-${mode}.html`);
      fs.writeFileSync(page, `<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="page.css">` +
        `<style>body{margin:0}</style><div id="root"></div><script>window.input=${input}</script>` +
        `<script src="page.js"></script>`);
      const height = 38 * Math.max(...dashboard.panels.map((p) => p.gridPos.y + p.gridPos.h)) + 60;
      const picture = path.join(path.resolve(out), `${name}-${mode}.png`);
      execFileSync(browser, ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--no-first-run',
        `--user-data-dir=${path.join(work, 'profile')}`, '--hide-scrollbars', `--window-size=${width},${height}`,
        '--virtual-time-budget=8000', '--allow-file-access-from-files', `--screenshot=${picture}`, `file://${page}`],
      { stdio: 'ignore', timeout: 120_000 });
      console.log(picture);
    }
  }
} finally {
  server?.kill();
  fs.rmSync(work, { recursive: true, force: true });
}
