// Compiles each dashboard as a value of Grafana's type of dashboards. A dashboard that is spoiled on purpose must be refused, so that
// a check that finds nothing is known to look.
import fs from 'node:fs';
import path from 'node:path';
import ts from 'typescript';

const here = import.meta.dirname;
const dashboards = path.join(here, '..', '..', 'deploy', 'dashboards');
const options = {
  strict: true, noEmit: true, skipLibCheck: true, exactOptionalPropertyTypes: true, target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler, types: [],
};

// check returns what is wrong with dashboards, by file. Each line of a dashboard is a line of its program.
function check(texts) {
  const programs = new Map();
  for (const [name, text] of texts) {
    programs.set(path.join(here, name + '.ts'), `import type { Dashboard } from './schema'; export const d: Dashboard = ${text}`);
  }
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists, readFile } = host;
  host.fileExists = (f) => programs.has(f) || fileExists.call(host, f);
  host.readFile = (f) => programs.get(f) ?? readFile.call(host, f);
  host.getSourceFile = (f, ...more) =>
    programs.has(f) ? ts.createSourceFile(f, programs.get(f), ...more) : getSourceFile.call(host, f, ...more);
  const program = ts.createProgram([...programs.keys()], options, host);
  return ts.getPreEmitDiagnostics(program).map((d) => {
    const at = d.file && `${path.basename(d.file.fileName, '.ts')}:${d.file.getLineAndCharacterOfPosition(d.start).line + 1}: `;
    return (at ?? '') + ts.flattenDiagnosticMessageText(d.messageText, '\n  ');
  });
}

const texts = fs.readdirSync(dashboards).filter((f) => f.endsWith('.json')).sort()
  .map((f) => [f, fs.readFileSync(path.join(dashboards, f), 'utf8')]);
if (texts.length === 0) throw new Error(`no dashboards in ${dashboards}`);

const spoil = {
  'a property that there is not': (d) => { d.panels.find((p) => p.type === 'stat').fieldConfig.defaults.uint = 's'; },
  'an unknown panel': (d) => { d.panels[0].type = 'graph'; },
  'an unknown way to draw': (d) => { d.panels.find((p) => p.type === 'timeseries').fieldConfig.defaults.custom.drawStyle = 'curve'; },
  'a title that is a number': (d) => { d.title = 1; },
};
for (const [what, how] of Object.entries(spoil)) {
  const spoiled = JSON.parse(texts[0][1]);
  how(spoiled);
  if (check([['spoiled', JSON.stringify(spoiled, null, 2)]]).length === 0) throw new Error(`this check does not see ${what}`);
}

const wrong = check(texts);
for (const w of wrong) console.error(w);
console.log(`${texts.length} dashboards, ${wrong.length} errors, by @grafana/schema ` +
  JSON.parse(fs.readFileSync(path.join(here, 'node_modules', '@grafana', 'schema', 'package.json'), 'utf8')).version);
process.exitCode = wrong.length ? 1 : 0;
