import { readFileSync } from 'node:fs';
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { type Result, reportOf } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';
import { CertificatePool, type Presented, presentedBy } from '@isthmus/runtime';
import { type Destination, HUB_SERVER_NAME, parseDestination } from '@isthmus/tunnel';
import { messageOf } from '../exit.ts';
import { judged } from './certificate.ts';

/** How long a hub may take to say what it makes of a probe, in milliseconds: it is told then that nobody was refused. */
const FAREWELL_MS = 2000;

/** A port that others must reach, and what proves that they do when this machine does not. */
interface Port {
  readonly hubId: string;
  readonly about: string;
  readonly address: string;
  /** The flag and file of the authorities that those others trust. */
  readonly trust: { readonly flag: string; readonly path: string | undefined };
  readonly proof: string | undefined;
  /** What its certificate must name. Unset: the host of the address. */
  readonly name?: string;
  readonly todo: string;
}

export interface PortTrust {
  readonly peerCaCert?: string;
  readonly caCert?: string;
}

export interface Probing {
  /** How long each answer may take. */
  readonly timeoutMs: number;
  /** Tells a hub from where a probe of its ports comes, before it is refused for want of a certificate. */
  readonly announce: (hubId: string, remote: string) => Promise<void>;
}

const report = reportOf('ports');
const shown = reportOf('certificates');

/** Of every hub: where gateways and agents reach it, from this machine, and the certificates that it shows there. */
export async function checkPorts(hubs: readonly adminApi.Hub[], trust: PortTrust, probing: Probing): Promise<Result[]> {
  const ports = hubs.flatMap((hub) => portsOf(hub, trust)).filter(({ address }) => address !== '');
  return (await Promise.all(ports.map((port) => checkPort(port, probing)))).flat();
}

function portsOf(
  { hubId, peerAddress, agentAddress, sessions }: adminApi.Hub,
  { peerCaCert, caCert }: PortTrust,
): Port[] {
  return [
    {
      hubId,
      about: `${hubId}, for gateways at ${peerAddress}`,
      address: peerAddress,
      trust: { flag: '--peer-ca-cert', path: peerCaCert },
      proof: undefined,
      name: HUB_SERVER_NAME,
      todo: "check that the hub listens there (--peer-port), its --advertise-address, and firewalls; or run this check on a gateway's machine",
    },
    {
      hubId,
      about: `${hubId}, for agents at ${agentAddress}`,
      address: agentAddress,
      trust: { flag: '--ca-cert', path: caCert },
      proof: sessions > 0 ? 'not reached from here, but agents are connected' : undefined,
      todo: "check that the hub listens there (--agent-port), its --advertise-agent-address, and firewalls; or run this check on an agent's machine",
    },
  ];
}

async function checkPort(
  { hubId, about, address, trust, proof, name, todo }: Port,
  { timeoutMs, announce }: Probing,
): Promise<Result[]> {
  try {
    const { host, port } = parseDestination(address);
    const certificate = await certificateAt({ host, port }, timeoutMs, (remote) => announce(hubId, remote));
    const open = report.pass(about, 'it listens');
    if (certificate === undefined)
      return [
        report.warn(
          about,
          'it listens, but does not use TLS',
          'give it a certificate, unless only this machine can reach it',
        ),
      ];
    const authorities = trust.path === undefined ? undefined : CertificatePool.of(readFileSync(trust.path));
    const demands = { use: 'server', authorities, authoritiesFrom: trust.flag, hosts: [name ?? host] } as const;
    return [open, judged(shown, `presented by ${about}`, [certificate.leaf, ...certificate.sent], demands)];
  } catch (error) {
    if (proof !== undefined) return [report.pass(about, proof)];
    return [report.fail(about, `cannot be reached from here: ${messageOf(error)}`, todo)];
  }
}

/** What a port shows in a TLS handshake, trusted or not; undefined where it answers and speaks no TLS. Rejects where nobody listens. */
async function certificateAt(
  { host, port }: Destination,
  timeoutMs: number,
  announce: (remote: string) => Promise<void>,
): Promise<Presented | undefined> {
  const socket = connectTcp({ host, port });
  try {
    await settled(socket, 'connect', timeoutMs);
    await announce(`${socket.localAddress}:${socket.localPort}`);
    // Not verified by OpenSSL, which stops at the first fault and names it in its own words: `judged` looks at it.
    const tls = connectTls({ socket, rejectUnauthorized: false, ...(isIP(host) === 0 && { servername: host }) });
    try {
      await settled(tls, 'secureConnect', timeoutMs);
    } catch {
      return undefined;
    }
    const presented = presentedBy(tls);
    // It says where it is until the hub has made up its mind: one that is gone by then could be anybody.
    tls.resume().end();
    await settled(tls, 'end', FAREWELL_MS).catch(() => undefined);
    return presented;
  } finally {
    socket.destroy();
  }
}

function settled(socket: Socket, event: 'connect' | 'secureConnect' | 'end', timeoutMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${timeoutMs / 1000} s`)), timeoutMs);
    const settle = (act: () => void) => () => {
      clearTimeout(timer);
      act();
    };
    socket.once(event, settle(resolve));
    socket.once(
      'close',
      settle(() => reject(new Error('it closed the connection'))),
    );
    // Errors after the handshake, such as a missing client certificate, do not matter here.
    socket.on('error', (error) => settle(() => reject(error))());
  });
}
