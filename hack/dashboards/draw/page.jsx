// A dashboard on Grafana's grid of 24 columns, each panel drawn by the component that Grafana draws it with. What Grafana keeps
// to itself (the queries, overrides, tables made of series) is done here, for as much of it as our dashboards use.
import { Component } from 'react';
import { createRoot } from 'react-dom/client';
import { createTheme, dateTime, FieldType, getDisplayProcessor, ThemeContext } from '@grafana/data';
import { BigValue, GlobalStyles, PanelChrome, PanelContextProvider, Table, TimeSeries } from '@grafana/ui';
import 'uplot/dist/uPlot.min.css';

const { dashboard, data, from, to, width, mode } = window.input;
const theme = createTheme({ colors: { mode } });
const [first, last] = [dateTime(from * 1000), dateTime(to * 1000)];
const range = { from: first, to: last, raw: { from: first, to: last } };
const row = 38; // CSS pixels, as Grafana's rows with their gaps

// What Grafana adds to the settings of a line.
const ofLines = {
  axisPlacement: 'auto', axisBorderShow: false, lineInterpolation: 'linear', scaleDistribution: { type: 'linear' },
  hideFrom: { legend: false, tooltip: false, viz: false }, thresholdsStyle: { mode: 'off' },
};

// config returns the settings of a field, by its name and by the name that it is shown by.
function config(panel, name, shown) {
  const c = structuredClone(panel.fieldConfig.defaults);
  if (panel.type === 'timeseries') {
    c.custom = { ...ofLines, ...c.custom };
    c.color ??= { mode: 'palette-classic' };
  }
  for (const step of c.thresholds?.steps ?? []) step.value ??= -Infinity;
  for (const { matcher, properties } of panel.fieldConfig.overrides) {
    const matches = {
      byName: (n) => n === matcher.options,
      byRegexp: (n) => new RegExp(matcher.options.replace(/^\/(.*)\/$/, '$1')).test(n),
    }[matcher.id];
    if (matches(shown ?? name) || matches(name)) for (const p of properties) c[p.id] = p.value;
  }
  return c;
}

function frame(panel, fields) {
  for (const f of fields) {
    f.config = { ...config(panel, f.name, f.shown), displayNameFromDS: f.shown };
    f.state = { seriesIndex: f.index ?? 0 };
    f.display = getDisplayProcessor({ field: f, theme });
  }
  return { fields, length: fields[0].values.length };
}

function lines(panel) {
  let index = 0;
  return panel.targets.flatMap((target, i) => data[panel.id][i].map(({ metric, values }) => frame(panel, [
    { name: 'Time', type: FieldType.time, values: values.map(([t]) => t * 1000) },
    { name: 'Value', type: FieldType.number, index: index++, labels: metric,
      shown: target.legendFormat.replace(/\{\{(\w+)\}\}/g, (_, label) => metric[label] ?? ''),
      values: values.map(([, v]) => (v === null ? null : Number(v))) },
  ])));
}

function table(panel) {
  const series = data[panel.id][0];
  const { excludeByName = {}, renameByName = {} } = panel.transformations.find((t) => t.id === 'organize').options;
  const labels = [...new Set(series.flatMap((s) => Object.keys(s.metric)))].sort();
  return frame(panel, [
    ...labels.map((l) => ({ name: l, type: FieldType.string, values: series.map((s) => s.metric[l] ?? '') })),
    { name: 'Value', type: FieldType.number, values: series.map((s) => Number(s.values[0][1])) },
  ].filter((f) => !excludeByName[f.name]).map((f) => ({ ...f, shown: renameByName[f.name] })));
}

function Stat({ panel, width, height }) {
  return lines(panel).map(({ fields: [, f] }, i, all) => (
    <BigValue key={i} theme={theme} width={width / all.length} height={height} count={all.length} {...panel.options}
      value={f.display(f.values.filter((v) => v !== null).at(-1))} />
  ));
}

function Drawn({ panel, width, height }) {
  if (data[panel.id].every((series) => series.length === 0)) {
    return <div style={{ padding: 8, color: theme.colors.text.secondary }}>No data</div>;
  }
  switch (panel.type) {
    case 'stat': return <Stat panel={panel} width={width} height={height} />;
    case 'table': return <Table data={table(panel)} width={width} height={height} />;
    default: return <TimeSeries frames={lines(panel)} structureRev={1} timeRange={range} timeZone="utc" width={width}
      height={height} legend={panel.options.legend} options={panel.options} />;
  }
}

class Guard extends Component {
  state = {};
  static getDerivedStateFromError(failed) { return { failed }; }
  render() { return this.state.failed ? <pre style={{ color: 'red' }}>{String(this.state.failed)}</pre> : this.props.children; }
}

// Components tell each other where the mouse is. Here nobody listens.
const nobody = { subscribe: () => ({ unsubscribe() {} }) };
const bus = { ...nobody, publish() {}, getStream: () => ({ ...nobody, pipe: () => nobody }) };
const quiet = { eventsScope: dashboard.uid, eventBus: bus };

function Panel({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const box = { left: x * width / 24 + 4, top: y * row + 44, width: w * width / 24 - 8, height: h * row - 8 };
  return (
    <div style={{ position: 'absolute', ...box }}>
      {panel.type === 'row' ? <div style={{ padding: '4px 8px', fontWeight: 500 }}>⌄ {panel.title}</div> : (
        <PanelChrome title={panel.title} description={panel.description} width={box.width} height={box.height}>
          {(w, h) => <Guard><Drawn panel={panel} width={w} height={h} /></Guard>}
        </PanelChrome>
      )}
    </div>
  );
}

const bottom = Math.max(...dashboard.panels.map((p) => p.gridPos.y + p.gridPos.h));
createRoot(document.getElementById('root')).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <PanelContextProvider value={quiet}>
      <div style={{ position: 'relative', width, height: bottom * row + 60, background: theme.colors.background.canvas }}>
        <div style={{ padding: '8px 12px', fontSize: 18 }}>{dashboard.title}</div>
        {dashboard.panels.map((p) => <Panel key={p.id} panel={p} />)}
      </div>
    </PanelContextProvider>
  </ThemeContext.Provider>,
);
