import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import type { adminApi } from '@isthmus/proto/admin';
import { parseDestination } from '@isthmus/tunnel';
import { messageOf } from '../exit.ts';
import { certificatesIn, judged } from './certificate.ts';
import { type Result, reportOf } from './result.ts';

/** A port that others must reach, and what proves that they do when this machine does not. */
interface Port {
  readonly about: string;
  readonly address: string;
  /** The file of the authorities that those others trust, and its flag. */
  readonly trust: { readonly flag: string; readonly path: string | undefined };
  readonly proof: string | undefined;
  readonly todo: string;
}

export interface PortTrust {
  readonly peerCaCert?: string;
  readonly caCert?: string;
}

const report = reportOf('ports');
const shown = reportOf('certificates');

/** Of every hub: where gateways and agents reach it, from this machine, and the certificates that it shows there. */
export async function checkPorts(
  hubs: readonly adminApi.Hub[],
  trust: PortTrust,
  timeoutMs: number,
): Promise<Result[]> {
  const ports = hubs.flatMap((hub) => portsOf(hub, trust)).filter(({ address }) => address !== '');
  return (await Promise.all(ports.map((port) => checkPort(port, timeoutMs)))).flat();
}

function portsOf(
  { hubId, peerAddress, agentAddress, sessions }: adminApi.Hub,
  { peerCaCert, caCert }: PortTrust,
): Port[] {
  return [
    {
      about: `${hubId}, for gateways at ${peerAddress}`,
      address: peerAddress,
      trust: { flag: '--peer-ca-cert', path: peerCaCert },
      proof: undefined,
      todo: "look whether the hub listens there (--peer-port), at its --advertise-address, and at firewalls; or ask from a gateway's machine",
    },
    {
      about: `${hubId}, for agents at ${agentAddress}`,
      address: agentAddress,
      trust: { flag: '--ca-cert', path: caCert },
      proof: sessions > 0 ? 'not reached from here, but agents are connected' : undefined,
      todo: "look whether the hub listens there (--agent-port), at its --advertise-agent-address, and at firewalls; or ask from an agent's machine",
    },
  ];
}

async function checkPort({ about, address, trust, proof, todo }: Port, timeoutMs: number): Promise<Result[]> {
  try {
    const { host, port } = parseDestination(address);
    const certificate = await certificateAt(host, port, timeoutMs);
    const open = report.pass(about, 'it listens');
    if (certificate === undefined)
      return [
        report.warn(
          about,
          'it listens, and speaks no TLS',
          'give it a certificate, unless nothing but this machine reaches it',
        ),
      ];
    const authorities = trust.path === undefined ? undefined : certificatesIn(readFileSync(trust.path, 'utf8'));
    const demands = { use: 'server', authorities, authoritiesFrom: trust.flag, hosts: [host] } as const;
    return [open, judged(shown, `shown by ${about}`, [certificate], demands)];
  } catch (error) {
    if (proof !== undefined) return [report.pass(about, proof)];
    return [report.fail(about, `cannot be reached from here: ${messageOf(error)}`, todo)];
  }
}

/** What a port shows in a TLS handshake, trusted or not; undefined where it answers and speaks no TLS. Rejects where nobody listens. */
async function certificateAt(host: string, port: number, timeoutMs: number): Promise<X509Certificate | undefined> {
  const socket = connectTcp({ host, port });
  try {
    await settled(socket, 'connect', timeoutMs);
    // Not verified by OpenSSL, which stops at the first fault and names it in its own words: `judged` looks at it.
    const tls = connectTls({ socket, rejectUnauthorized: false, ...(isIP(host) === 0 && { servername: host }) });
    try {
      await settled(tls, 'secureConnect', timeoutMs);
    } catch {
      return undefined;
    }
    const raw = (tls as TLSSocket).getPeerCertificate().raw;
    tls.destroy();
    return raw && new X509Certificate(raw);
  } finally {
    socket.destroy();
  }
}

function settled(socket: Socket, event: 'connect' | 'secureConnect', timeoutMs: number): Promise<void> {
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
    // What comes after the handshake, such as a certificate that is asked for in vain, is of no matter here.
    socket.on('error', (error) => settle(() => reject(error))());
  });
}
