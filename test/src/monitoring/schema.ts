import * as v from 'valibot';

/*
 * What Grafana's dashboard kind (kinds/dashboard/dashboard_kind.cue, schema version 36 and later) says of the fields that our dashboard
 * uses. Objects are strict, so a misspelt field is an error: Grafana itself ignores one without a word.
 */

const text = v.pipe(v.string(), v.minLength(1));
const whole = (least: number, most = Number.MAX_SAFE_INTEGER) =>
  v.pipe(v.number(), v.integer(), v.minValue(least), v.maxValue(most));

const gridPos = v.strictObject({
  h: whole(1),
  w: whole(1, 24),
  x: whole(0, 23),
  y: whole(0),
  static: v.optional(v.boolean()),
});
const datasource = v.strictObject({ type: text, uid: text });

/** A query of the data source Prometheus (its DataQuery kind). */
const target = v.strictObject({
  refId: v.pipe(v.string(), v.regex(/^[A-Z]$/)),
  expr: text,
  legendFormat: v.optional(v.string()),
  exemplar: v.optional(v.boolean()),
  instant: v.optional(v.boolean()),
  range: v.optional(v.boolean()),
  format: v.optional(v.picklist(['time_series', 'table', 'heatmap'])),
  hide: v.optional(v.boolean()),
});

const thresholds = v.strictObject({
  mode: v.picklist(['absolute', 'percentage']),
  steps: v.pipe(v.array(v.strictObject({ value: v.nullable(v.number()), color: text })), v.minLength(1)),
});

const fieldConfig = v.strictObject({
  defaults: v.strictObject({
    unit: v.optional(text),
    decimals: v.optional(whole(0)),
    min: v.optional(v.number()),
    max: v.optional(v.number()),
    noValue: v.optional(text),
    color: v.optional(v.strictObject({ mode: text, fixedColor: v.optional(text) })),
    thresholds: v.optional(thresholds),
    custom: v.optional(v.record(v.string(), v.unknown())),
  }),
  overrides: v.array(
    v.strictObject({
      matcher: v.strictObject({ id: text, options: v.optional(v.unknown()) }),
      properties: v.array(v.strictObject({ id: text, value: v.unknown() })),
    }),
  ),
});

const panel = v.strictObject({
  id: whole(1),
  type: v.picklist(['timeseries', 'stat', 'table', 'heatmap', 'gauge', 'bargauge']),
  title: text,
  description: v.optional(v.string()),
  datasource,
  gridPos,
  fieldConfig,
  options: v.optional(v.record(v.string(), v.unknown())),
  targets: v.pipe(v.array(target), v.minLength(1)),
});

const row = v.strictObject({
  id: whole(1),
  type: v.literal('row'),
  title: text,
  collapsed: v.boolean(),
  gridPos,
  panels: v.pipe(v.array(v.unknown()), v.length(0)),
});

const common = { name: v.pipe(v.string(), v.regex(/^\w+$/)), label: text };
const variable = v.variant('type', [
  v.strictObject({ ...common, type: v.literal('datasource'), query: text }),
  v.strictObject({
    ...common,
    type: v.literal('query'),
    datasource,
    query: text,
    multi: v.boolean(),
    includeAll: v.boolean(),
    allValue: text,
    current: v.strictObject({ text, value: text }),
    refresh: whole(0, 2),
    sort: whole(0, 8),
  }),
]);

export const dashboardSchema = v.strictObject({
  uid: v.pipe(v.string(), v.regex(/^[\w-]{1,40}$/)),
  title: text,
  tags: v.array(text),
  schemaVersion: whole(36),
  version: whole(0),
  editable: v.boolean(),
  graphTooltip: whole(0, 2),
  refresh: text,
  time: v.strictObject({ from: text, to: text }),
  timezone: text,
  annotations: v.optional(v.strictObject({ list: v.array(v.unknown()) })),
  links: v.optional(v.array(v.unknown())),
  templating: v.strictObject({ list: v.array(variable) }),
  panels: v.pipe(
    v.array(v.variant('type', [panel, row])),
    v.check(
      (all) => new Set(all.map(({ id }) => id)).size === all.length,
      'two panels have one id: Grafana shows one of them',
    ),
  ),
});
