import { execFile, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, mkdir, readdir, readFile, rename } from 'node:fs/promises';
import { promisify } from 'node:util';
import type { Front } from './plane.ts';
import { type Program, startCommand } from './program.ts';
import { ROOT } from './runtime.ts';
import type { Scope } from './scope.ts';

const SOURCES = `${ROOT}test/compat/peer`;
const BUILD_MS = 15 * 60_000;

/** Returns why there are no Go peers here, or false if there are: the `skip` option of a test. */
export function goMissing(): string | false {
  return spawnSync('go', ['version']).status === 0 ? false : 'go is not installed (https://go.dev/doc/install)';
}

let built: Promise<string> | undefined;

/** Returns the path of the `peer` program. Builds it once for each state of its sources. */
export function peer(): Promise<string> {
  built ??= build();
  return built;
}

async function build(): Promise<string> {
  const hash = createHash('sha256');
  for (const name of (await readdir(SOURCES)).sort()) hash.update(await readFile(`${SOURCES}/${name}`));
  const cache = `${ROOT}node_modules/.cache/isthmus`;
  const path = `${cache}/peer-${hash.digest('hex').slice(0, 16)}`;
  const exists = await access(path).then(
    () => true,
    () => false,
  );
  if (exists) return path;
  await mkdir(cache, { recursive: true });
  // Build under a unique name first: another test file may build at the same time.
  const fresh = `${path}-${process.pid}`;
  await promisify(execFile)('go', ['build', '-o', fresh, '.'], { cwd: SOURCES, timeout: BUILD_MS });
  await rename(fresh, path);
  return path;
}

/** How the peer dials: as konnectivity-client over a socket, or as an API server with its egress configuration. */
export type PeerVia = { readonly uds: string } | { readonly config: string };

export interface PeerDial {
  readonly via: PeerVia;
  readonly dest: string;
  /** `get` an HTTP page, `echo` random bytes, `read` to the end, `hold` until the end, or `nothing`. Default get. */
  readonly do?: 'get' | 'echo' | 'read' | 'hold' | 'nothing';
  /** Bytes to echo. */
  readonly size?: number;
  readonly count?: number;
  readonly concurrency?: number;
  /** Go's syntax; default 30s. */
  readonly timeout?: string;
}

/** The result of one dial; times in milliseconds. `error` is empty if all went well. */
export interface PeerResult {
  readonly error: string;
  readonly stage: '' | 'dial' | 'use';
  readonly reason: string;
  readonly dialMs: number;
  readonly useMs: number;
  readonly closeMs: number;
  /** konnectivity-client sets this even if the other side closed first. */
  readonly closeError: string;
  readonly bytes: number;
  readonly sha256: string;
  readonly text: string;
}

export interface PeerSummary {
  readonly ok: number;
  readonly failed: number;
  readonly ms: number;
  readonly results: readonly PeerResult[];
}

export async function startPeerDial(scope: Scope, { via, ...flags }: PeerDial): Promise<Program> {
  return startCommand(scope, [await peer(), 'dial'], { flags: { ...via, ...flags } });
}

/** Runs the Go caller to its end. */
export async function peerDial(scope: Scope, dial: PeerDial, deadline = 60_000): Promise<PeerSummary> {
  return summaryOf(await startPeerDial(scope, dial), deadline);
}

export async function summaryOf(program: Program, deadline?: number): Promise<PeerSummary> {
  await program.ended(deadline);
  const summary = program.logs.at(-1);
  if (!summary) throw new Error(`no summary${program.tail}`);
  return summary as unknown as PeerSummary;
}

/** EgressSelectorConfigurations for a front, one for each transport that an API server supports. */
export function egressConfigs(front: Pick<Front, 'grpc' | 'connect' | 'mtls'>): Readonly<Record<string, string>> {
  const { grpc, connect, mtls } = front;
  const tls = { caBundle: mtls.ca, clientCert: mtls.identity.cert, clientKey: mtls.identity.key };
  const tcp = { url: `https://127.0.0.1:${mtls.port}`, tlsConfig: tls };
  return {
    'gRPC over UDS': egressConfig('GRPC', { uds: { udsName: grpc.uds } }),
    'HTTP CONNECT over UDS': egressConfig('HTTPConnect', { uds: { udsName: connect.uds } }),
    'HTTP CONNECT over mTLS': egressConfig('HTTPConnect', { tcp }),
  };
}

/** As JSON, which is also YAML. */
function egressConfig(proxyProtocol: string, transport: unknown): string {
  return JSON.stringify({
    apiVersion: 'apiserver.k8s.io/v1beta1',
    kind: 'EgressSelectorConfiguration',
    egressSelections: [{ name: 'cluster', connection: { proxyProtocol, transport } }],
  });
}
