// What a dashboard of ours is, by Grafana's own schema. Grafana's types are of programs, ours are of files: where a program writes a
// member of an enumeration, a file has its value.
import type * as grafana from '@grafana/schema';
import type * as series from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';

// A value of an enumeration instead of its member, at any depth.
type InFile<T> = T extends string ? `${T}` : T extends number ? T : T extends object ? { [K in keyof T]: InFile<T[K]> } : T;

// @grafana/schema has no query of Prometheus: these are what the data source's own type calls them.
interface Query extends grafana.DataQuery {
  expr: string;
  legendFormat: string;
  format?: 'table' | 'time_series';
  instant?: boolean;
}

// Options and fields that are left out have Grafana's default.
interface Of<Type extends string, Options, Custom> extends Omit<grafana.Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> {
  type: Type;
  title: string;
  gridPos: grafana.GridPos;
  datasource: grafana.DataSourceRef;
  targets: Query[];
  options: Partial<Options>;
  fieldConfig: Omit<grafana.FieldConfigSource, 'defaults'> & {
    defaults: Omit<grafana.FieldConfig, 'custom'> & { custom?: Partial<Custom> };
  };
}

type Panel =
  | Of<'timeseries', series.Options, series.FieldConfig>
  | Of<'stat', stat.Options, never>
  | Of<'table', table.Options, table.FieldConfig>
  | grafana.RowPanel;

export type Dashboard = InFile<Omit<grafana.Dashboard, 'panels'> & { panels: Panel[] }>;
