import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '../harness/index.ts';
import { type Command, must } from './command.ts';
import { apply, kubectl, kubectlArgs, namesOf, rolledOut, tryKubectl } from './kubectl.ts';
import { SOURCES } from './settings.ts';

export const NAMESPACE = 'probe';
export const GROUP = 'probe.isthmus.test';

/** kubectl in the probe's namespace. */
export function inProbe(...args: string[]): Command {
  return kubectlArgs(['-n', NAMESPACE, ...args]);
}

/** Deploys the workload of the checks, and waits until the API server finds its aggregated API available. */
export async function deployProbe(directory: string): Promise<void> {
  const [certificate, key] = ['probe.crt', 'probe.key'].map((name) => join(directory, name)) as [string, string];
  const names = 'subjectAltName=DNS:probe.probe.svc';
  const request = ['-subj', '/CN=probe', '-addext', names, '-days', '1', '-keyout', key, '-out', certificate];
  await must(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', ...request]);
  await apply({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE } });
  await kubectl(['-n', NAMESPACE, 'create', 'secret', 'tls', 'probe-tls', `--cert=${certificate}`, `--key=${key}`]);
  const bundle = readFileSync(certificate).toString('base64');
  const manifest = join(directory, 'probe.yaml');
  writeFileSync(
    manifest,
    readFileSync(join(SOURCES, 'probe.yaml'), 'utf8').replaceAll('caBundle: CA_BUNDLE', `caBundle: ${bundle}`),
  );
  await kubectl(['apply', '-f', manifest]);
  for (const name of ['probe', 'writer']) await rolledOut(NAMESPACE, `deployment/${name}`);
  await apiAvailable();
}

/** The API server asks an aggregated API now and then whether it is there; it dials it through the plane. */
export async function apiAvailable(): Promise<void> {
  const status = 'jsonpath={.status.conditions[?(@.type=="Available")].status}';
  await until(async () => (await tryKubectl(['get', 'apiservice', `v1.${GROUP}`, '-o', status])).stdout === 'True', {
    what: 'the aggregated API',
    deadline: 120_000,
  });
}

/** Returns the name of one of the probe's pods. */
export async function probePod(): Promise<string> {
  return (await namesOf(NAMESPACE, 'pods', 'app=probe'))[0] ?? '';
}
