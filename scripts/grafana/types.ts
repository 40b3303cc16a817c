// What a dashboard may hold, from Grafana's own schema. An unknown field is an error, not only a wrong one.
import type { Dashboard, FieldConfig, FieldConfigSource, Panel, RowPanel } from "@grafana/schema/dist/types/raw/dashboard/x/types.gen";
import type * as timeSeries from "@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/types.gen";

/** Enumerations as JSON has them: by value. */
type Plain<T> = T extends string
  ? `${T}`
  : T extends number
    ? `${T}` extends `${infer N extends number}`
      ? N
      : T
    : T extends boolean | null | undefined
      ? T
      : { [K in keyof T]: Plain<T[K]> };

type Defaults = Omit<FieldConfig, "custom"> & { custom: timeSeries.FieldConfig };

/** The one kind of panel that the dashboard has. Its queries are checked by running them. */
type TimeSeries = Omit<Panel, "type" | "options" | "fieldConfig" | "gridPos" | "title" | "description" | "targets"> &
  Required<Pick<Panel, "gridPos" | "title" | "description">> & {
    type: "timeseries";
    options: timeSeries.Options;
    fieldConfig: Omit<FieldConfigSource, "defaults"> & { defaults: Defaults };
    targets: PrometheusQuery[];
  };

interface PrometheusQuery {
  refId: string;
  datasource: { type: "prometheus"; uid: "${datasource}" };
  expr: string;
  legendFormat: string;
  range: true;
  instant: false;
  exemplar: boolean;
  editorMode: "code";
}

/** What every annotation has, and the query of one that asks Prometheus. */
type Annotation = NonNullable<NonNullable<Dashboard["annotations"]>["list"]>[number] & {
  expr?: string;
  titleFormat?: string;
  textFormat?: string;
};

export type Coxswain = Plain<
  Omit<Dashboard, "panels" | "annotations" | "id"> &
    Required<Pick<Dashboard, "uid" | "title" | "schemaVersion" | "templating" | "time">> & {
      panels: (TimeSeries | (Omit<RowPanel, "panels"> & { panels: [] }))[];
      annotations: { list: Annotation[] };
    }
>;
