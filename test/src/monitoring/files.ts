import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { root } from '../k8s/manifests.ts';

const directory = join(root, 'k8s/monitoring');

export interface Alert {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly runbook: string };
}

interface Rules {
  readonly groups: readonly { readonly rules: readonly Alert[] }[];
}

interface Panel {
  readonly type: string;
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly refId: string; readonly expr: string }[];
}

export function read(path: string): string {
  return readFileSync(join(directory, path), 'utf8');
}

/** Returns the YAML files of a directory, by their path below k8s/monitoring. */
export function yamlFiles(name: 'alerts' | 'tests'): string[] {
  return readdirSync(join(directory, name))
    .filter((file) => file.endsWith('.yaml'))
    .map((file) => `${name}/${file}`);
}

export const alerts = yamlFiles('alerts').flatMap((path) =>
  (parse(read(path)) as Rules).groups.flatMap(({ rules }) => rules),
);

export const dashboard = JSON.parse(read('dashboard.json')) as { readonly panels: readonly Panel[] };

export const { panels } = dashboard;

/** The dashboard's queries, with its variables set as for a panel that shows everything. */
export const questions = panels.flatMap(({ targets = [] }) =>
  targets.map(({ expr }) => expr.replaceAll(/\$(job|instance|tenant)/g, '.*').replaceAll('$__rate_interval', '5m')),
);
