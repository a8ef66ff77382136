import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { startRedis } from '@isthmus/directory/testing/servers';
import { parse } from 'yaml';
import {
  AS_IN_IMAGE,
  commandOf,
  type Env,
  type Flags,
  freePort,
  isUp,
  newTrust,
  type Program,
  peerFlags,
  type Scope,
  startCommand,
  startGateway,
  startHub,
  tempDir,
  times,
  until,
} from '../harness/index.ts';
import type { KubernetesApi } from './kubernetes-api.ts';

/** A tenant's file, as far as the tests read it. */
export interface WrittenFile {
  readonly tenant: string;
  readonly source: { readonly kind: string };
  readonly agents: readonly {
    readonly certificates: { readonly ca: string };
    readonly tokens: { readonly keys: string; readonly subject: string };
  }[];
  readonly callers: readonly { readonly certificates: { readonly ca: string; readonly names: readonly string[] } }[];
  readonly limits?: { readonly tunnels: number };
}

export interface Synced {
  readonly dir: string;
  readonly program: Program;
}

export async function startSync(
  scope: Scope,
  { kubeconfig }: Pick<KubernetesApi, 'kubeconfig'>,
  flags: Flags = {},
  dir?: string,
  env: Env = AS_IN_IMAGE,
): Promise<Synced> {
  const to = dir ?? (await tempDir(scope));
  const healthPort = await freePort();
  const all = { 'tenants-dir': to, kubeconfig, 'health-port': healthPort, 'log-format': 'json', member: '', ...flags };
  const command = [...commandOf('isthmus'), 'tenants', 'sync'] as const;
  const program = startCommand(scope, command, { flags: all, healthPort, env });
  await isUp(program);
  return { dir: to, program };
}

/** Starts so many gateways and hubs of one plane, each with a directory and a sync of its own: those of hubs come first. */
export async function startSyncedPlane(
  scope: Scope,
  kube: Pick<KubernetesApi, 'kubeconfig'>,
  { each, flags }: { readonly each: number; readonly flags?: Flags },
) {
  const [trust, redis] = [await newTrust(scope), await startRedis()];
  scope.defer(() => redis.stop());
  const syncs = await times(2 * each, () => startSync(scope, kube, flags));
  const flagsOf = (index: number): Flags => {
    return { 'redis-url': redis.url, plane: 'synced', v: 0, 'tenants-dir': syncs[index]?.dir };
  };
  const hubs = await times(each, (index) => startHub(scope, trust, flagsOf(index), AS_IN_IMAGE));
  const gateways = await times(each, async (index) => {
    // The flag's socket would be of no tenant.
    const own = { ...(await peerFlags(trust, ['gateway'])), 'uds-name': undefined };
    return startGateway(scope, trust, { ...flagsOf(each + index), ...own }, AS_IN_IMAGE);
  });
  return { trust, hubs, gateways, syncs };
}

/** Files of tenants in a directory. */
export function files(dir: string): string[] {
  return readdirSync(dir)
    .filter((name) => name.endsWith('.yaml'))
    .sort();
}

export function fileOf(dir: string, name: string): WrittenFile | undefined {
  const path = join(dir, name);
  return existsSync(path) ? parse(readFileSync(path, 'utf8')) : undefined;
}

/** The content of a file that a tenant's file names. */
export function named(dir: string, path = ''): string {
  return readFileSync(join(dir, path), 'utf8');
}

export function faults(dir: string): { object: string; fault: string; kept?: string }[] {
  return existsSync(join(dir, '.sync.json')) ? JSON.parse(readFileSync(join(dir, '.sync.json'), 'utf8')).faults : [];
}

/** What is wrong with an object, once something is. */
export function faultOf(dir: string, object: string): Promise<string> {
  return until(() => faults(dir).find((each) => each.object === object)?.fault, {
    what: () => `a fault of ${object}: ${JSON.stringify(faults(dir))}`,
  });
}

/** Waits for a tenant's file, or until it is as it should be. */
export function written(dir: string, name: string, is: (file: WrittenFile) => boolean = () => true) {
  return until(
    () => {
      const file = fileOf(dir, name);
      return file && is(file) ? file : undefined;
    },
    { deadline: 30_000, what: () => `${name} in ${files(dir)}; ${JSON.stringify(faults(dir))}` },
  );
}
