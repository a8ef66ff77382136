import { goProgram } from './go-program.ts';
import type { Front } from './plane.ts';
import { type Program, startCommand } from './program.ts';
import type { Scope } from './scope.ts';

let built: Promise<string> | undefined;

/** Returns the path of the `peer` program. */
export function peer(): Promise<string> {
  built ??= goProgram('peer');
  return built;
}

/** How the peer dials: as konnectivity-client over a socket, or as an API server with its egress configuration. */
export type PeerVia = { readonly uds: string } | { readonly config: string };

export interface PeerDial {
  readonly via: PeerVia;
  readonly dest: string;
  /**
   * `get` an HTTP page, `echo` random bytes, `read` to the end, `hold` until the end, or `nothing`. `type`, `follow` and `watch` read
   * numbered lines until the destination says `end`: what they have typed, a log, or an answer over HTTP/2. Default get.
   */
  readonly do?: 'get' | 'echo' | 'read' | 'hold' | 'type' | 'follow' | 'watch' | 'nothing';
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
  /** Numbered lines that came. */
  readonly lines: number;
  /** The longest wait for one. */
  readonly pauseMs: number;
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
