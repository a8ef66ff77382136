import { once } from 'node:events';
import { lstatSync } from 'node:fs';
import { connect as connectTcp } from 'node:net';
import { dirname } from 'node:path';
import timers from 'node:timers/promises';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import type { RedisProbe } from '@isthmus/directory/redis';
import { type Result, registryTodo, reportOf } from '@isthmus/findings';
import { faultOfSocketPath, hiddenSocket, redisOptions } from '@isthmus/flags';
import type { adminApi } from '@isthmus/proto/admin';
import { CertificatePool, connectTo, presentedBy, readNamedFile, sniOf, unlessGivenUp } from '@isthmus/runtime';
import { type Destination, HUB_SERVER_NAME, inWords, parseDestination } from '@isthmus/tunnel';
import { Option } from 'commander';
import { ISTHMUS } from '../defaults.ts';
import { millis } from '../output.ts';
import { fewAtOnce } from '../plane/evidence.ts';
import { handshake } from '../through-gateway.ts';
import { FILE_OPTIONS, type FileOptions, judged } from './check-files.ts';

/** A port that others must reach, and what proves that they do when this machine does not. */
interface Port {
  readonly hubId: string;
  readonly about: string;
  readonly address: string;
  /** The flag and file of the authorities that those others trust. */
  readonly trust: { readonly flag: string; readonly path: string | undefined };
  readonly proof: string | undefined;
  /** What its certificate must name. Empty where it is not known by which names others reach it. */
  readonly names: readonly string[] | undefined;
  readonly todo: string;
}

type PortTrust = Pick<FileOptions, 'peerCaCert' | 'caCert'>;

interface Probing {
  /** How long each answer may take. */
  readonly timeoutMs: number;
  /** In milliseconds since the epoch, as most members say it. */
  readonly now: () => Promise<number>;
  /** Tells a hub from where a probe of its ports comes, before it is refused for want of a certificate. */
  readonly announce: (hubId: string, remote: string) => Promise<void>;
  /** Where agents reach a hub. */
  readonly agentPortOf: (hub: adminApi.Hub) => Promise<HubPorts>;
  /** The names of API servers, and whose they are. */
  readonly apiServers: () => Promise<ReadonlyMap<string, string>>;
}

const portReport = reportOf('ports');

/** A hub, and by which names agents reach it, if not by the host of its address. */
export type HubPorts = adminApi.Hub & { readonly agentNames?: readonly string[] };

/**
 * Of every hub: where gateways and agents reach it, from this machine, the certificates that it shows there, and which API servers answer
 * behind it.
 */
export async function checkPorts(hubs: readonly adminApi.Hub[], trust: PortTrust, probing: Probing): Promise<Result[]> {
  const all = hubs.map(async (hub) => {
    const found = await Promise.all([
      checkPort(peerPortOf(hub, trust), probing),
      probing.agentPortOf(hub).then((own) => checkAgentPort(own, trust, probing)),
    ]);
    return found.flat();
  });
  return (await Promise.all(all)).flat();
}

async function checkAgentPort(hub: HubPorts, trust: PortTrust, probing: Probing): Promise<Result[]> {
  const results = await checkPort(agentPortOf(hub, trust), probing);
  // Without a certificate of its own there is nothing behind it.
  if (results.length < 2) return results;
  return [...results, ...(await checkApiServers(hub, probing))];
}

function peerPortOf({ hubId, peerAddress }: adminApi.Hub, { peerCaCert }: PortTrust): Port {
  return {
    hubId,
    about: `${hubId}, for gateways at ${peerAddress}`,
    address: peerAddress,
    trust: { flag: '--peer-ca-cert', path: peerCaCert },
    proof: undefined,
    names: [HUB_SERVER_NAME],
    todo: "check that the hub listens there (--peer-port), its --advertise-address, and firewalls; or run this check on a gateway's machine",
  };
}

function agentPortOf({ hubId, agentAddress, agentNames, sessions }: HubPorts, { caCert }: PortTrust): Port {
  return {
    hubId,
    about: `${hubId}, for agents at ${agentAddress}`,
    address: agentAddress,
    trust: { flag: '--ca-cert', path: caCert },
    names: agentNames,
    proof: sessions > 0 ? 'not reached from here, but agents are connected' : undefined,
    todo: "check that the hub listens there (--agent-port), its --advertise-agent-address, and firewalls; or run this check on an agent's machine",
  };
}

/** @returns nothing of a port without an address, one result of a port that cannot be used, and otherwise a second about its certificate */
async function checkPort(
  { hubId, about, address, trust, proof, names, todo }: Port,
  { timeoutMs, announce, now }: Probing,
): Promise<Result[]> {
  if (address === '') return [];
  try {
    const to = parseDestination(address);
    const shown = await shownAt(to, timeoutMs, (remote) => announce(hubId, remote));
    if ('fault' in shown) return [withoutTls(about, inWords(shown.fault))];
    const { certificate, agreed } = shown;
    const open = portReport.pass(about, `it listens, and agrees with this program on ${agreed}`);
    const authorities = trust.path === undefined ? undefined : CertificatePool.of(readNamedFile(trust.path));
    const demands = { use: 'server', authorities, authoritiesFrom: trust.flag, hosts: names ?? [to.host] } as const;
    return [open, judged(`presented by ${about}`, [certificate.leaf, ...certificate.sent], demands, await now())];
  } catch (error) {
    if (proof !== undefined) return [portReport.pass(about, proof)];
    return [portReport.fail(about, `cannot be reached from here: ${inWords(error)}`, todo)];
  }
}

/** A port that hangs accepts connections too: the kernel does it. Only an answer says that it does not use TLS. */
function withoutTls(about: string, fault: string): Result {
  if (/speaks no TLS/.test(fault))
    return portReport.warn(
      about,
      'it listens, but does not use TLS',
      'give it a certificate, unless only this machine can reach it',
    );
  return portReport.fail(
    about,
    `it accepts connections, but the TLS handshake fails: ${fault}`,
    'its process hangs, is busy, or refuses this machine: see its log, and isthmus status',
  );
}

/** Reaches each API server by its names, at a hub's port for agents, and says what certificate answers. */
async function checkApiServers(hub: HubPorts, probing: Probing): Promise<Result[]> {
  const names = [...(await probing.apiServers())];
  return (await fewAtOnce(names, ([name, tenant]) => checkApiServer(hub, name, tenant, probing))).flat();
}

async function checkApiServer(
  hub: HubPorts,
  name: string,
  tenant: string,
  { timeoutMs, now }: Probing,
): Promise<Result[]> {
  const about = `the API server ${name} of tenant ${tenant}, through ${hub.hubId} at ${hub.agentAddress}`;
  const todo = `see why in the log of ${hub.hubId}, and whether it reaches the addresses of apiServer in the tenant's file`;
  const to = parseDestination(hub.agentAddress);
  const shown = await shownAt(to, timeoutMs, async () => {}, name).catch((fault: unknown) => ({ fault }));
  if ('fault' in shown) return [portReport.fail(about, `no certificate answers: ${inWords(shown.fault)}`, todo)];
  const { leaf, sent } = shown.certificate;
  const demands = { use: 'server', authorities: undefined, authoritiesFrom: '', hosts: [name] } as const;
  return [
    portReport.pass(about, `${leaf.title} answers`),
    judged(`presented by ${about}`, [leaf, ...sent], demands, await now()),
  ];
}

/**
 * What a port shows in a TLS handshake, trusted or not, and the protocol, cipher and key exchange; or why there was none. Rejects where nobody
 * listens.
 */
async function shownAt(to: Destination, timeout: number, announce: (remote: string) => Promise<void>, name = to.host) {
  const end = performance.now() + timeout;
  const socket = await connectTo(to, { timeout });
  try {
    // A hub that hangs takes this no more than what follows, and has one time-out for both.
    const patience = timers.setTimeout((end - performance.now()) / 2, undefined, { ref: false });
    await Promise.race([announce(`${socket.localAddress}:${socket.localPort}`), patience]);
    // Not verified by OpenSSL, which stops at the first fault and names it in its own words: `judged` looks at it.
    const tls = connectTls({ socket, rejectUnauthorized: false, ...sniOf(name) });
    // Errors after the handshake, such as a missing client certificate, do not matter here.
    tls.on('error', () => {});
    const late = `no answer within ${timeout / 1000} s`;
    const left = { timeout: Math.max(1, end - performance.now()), late };
    const fault = await unlessGivenUp(tls, () => handshake(tls), left).catch((error: unknown) => error);
    if (fault) return { fault };
    const certificate = presentedBy(tls);
    const agreed = agreedOn(tls);
    // It says where it is until the hub has made up its mind: one that is gone by then could be anybody.
    tls.resume().end();
    const signal = AbortSignal.timeout(ISTHMUS.probeEndMs);
    await Promise.race([once(tls, 'end', { signal }), once(tls, 'close', { signal })]).catch(() => undefined);
    return certificate ? { certificate, agreed } : { fault: new Error('it shows no certificate') };
  } finally {
    socket.destroy();
  }
}

/** `TLSv1.3, TLS_AES_256_GCM_SHA384, X25519MLKEM768`. Deno does not know the key exchange, nor does an old Node one of two parts. */
function agreedOn(tls: TLSSocket): string {
  const exchange = tls.getEphemeralKeyInfo?.() as { readonly name?: string } | null | undefined;
  return [tls.getProtocol(), tls.getCipher().standardName, exchange?.name].filter(Boolean).join(', ');
}

const socketReport = reportOf('socket');

/** Checks the unix socket on which a server accepts API servers. An API server that finds none waits 30 s, and says nothing. */
export async function checkSocket(path: string | undefined): Promise<Result[]> {
  if (path === undefined) return [];
  const about = `--uds-name ${path}`;
  const fault = faultOfSocketPath(path);
  const mount = `mount the same directory, ${dirname(path)}, in the pods of the server and of the API server`;
  if (fault !== undefined) return [socketReport.fail(about, fault, mount)];
  const hidden = hiddenSocket(path);
  const seen = hidden === undefined ? [] : [socketReport.fail(about, hidden, mount)];
  return [...seen, await listening(about, path)];
}

async function listening(about: string, path: string): Promise<Result> {
  if (!lstatSync(path, { throwIfNoEntry: false })) {
    return socketReport.fail(about, 'there is no socket', 'start the server with this --uds-name');
  }
  const socket = connectTcp(path);
  try {
    await once(socket, 'connect', { signal: AbortSignal.timeout(ISTHMUS.socketAcceptMs) });
    return socketReport.pass(about, 'a server listens');
  } catch (error) {
    const refused = (error as NodeJS.ErrnoException).code === 'ECONNREFUSED';
    const detail = refused ? 'nobody listens: a server that has ended left it' : inWords(error);
    return socketReport.fail(
      about,
      detail,
      refused ? 'start the server: it replaces the socket' : 'check its permissions',
    );
  } finally {
    socket.destroy();
  }
}

/** The options for Redis, besides those for its certificates. */
export const REDIS_OPTIONS = [
  new Option('--redis-url <url>', 'as for the programs: reachable, version, permissions?'),
  new Option('--redis-username-file <file>', 'as for the programs: the user name for Redis'),
  new Option('--redis-password-file <file>', 'as for the programs: the password for Redis'),
  new Option('--redis-sentinel-username-file <file>', 'as for the programs: the user name for Sentinels'),
  new Option('--redis-sentinel-password-file <file>', 'as for the programs: the password for Sentinels'),
  new Option('--plane <name>', 'as for the programs: the plane whose keys to use in Redis').default('isthmus'),
];

export interface RedisOptions {
  readonly redisUrl?: string;
  readonly plane: string;
}

/** The flags of the programs, as the command line gives them. */
function redisFlags(options: RedisOptions): Parameters<typeof redisOptions>[0] {
  const all = [...REDIS_OPTIONS, ...FILE_OPTIONS.filter((option) => option.name().startsWith('redis-'))];
  const given = options as unknown as Readonly<Record<string, string | undefined>>;
  const flags = all.map((option) => [option.name(), given[option.attributeName()] ?? '']);
  return Object.fromEntries(flags);
}

/** The oldest version in the plane's tests. */
const OLDEST_REDIS = 7;

const REDIS_TODO =
  'check that it runs, its address, user name and password (--redis-password-file), and whether it needs TLS (rediss)';

const redisReport = reportOf('redis');

interface RedisResults {
  readonly results: readonly Result[];
  /** How far its clock is ahead of this machine's; unset if it did not answer. */
  readonly aheadMs?: number;
}

export async function checkRedis(options: RedisOptions): Promise<RedisResults> {
  if (options.redisUrl === undefined) return { results: [] };
  try {
    const { probeRedis } = await import('@isthmus/directory/redis');
    const probe = await probeRedis(redisOptions(redisFlags(options)));
    const { aheadMs } = probe;
    return { results: judgedRedis(probe, options.plane), ...(aheadMs !== undefined && { aheadMs }) };
  } catch (error) {
    const text = inWords(error);
    return { results: [redisReport.fail('--redis-url', text, registryTodo(text, REDIS_TODO))] };
  }
}

export function judgedRedis(probe: RedisProbe, plane: string): Result[] {
  const { server, version, role, maxmemoryPolicy, roundTripMs, refused, noWrites } = probe;
  const results = [
    roundTripMs < ISTHMUS.redisSlowMs
      ? redisReport.pass(server, `answers in ${millis(roundTripMs)}`)
      : redisReport.warn(server, `answers in ${millis(roundTripMs)}`, 'check its load, and the network to it'),
  ];
  if (version !== '') {
    const old = Number(version.split('.')[0]) < OLDEST_REDIS;
    results.push(
      old
        ? redisReport.warn(server, `version ${version} is not tested`, `use version ${OLDEST_REDIS} or newer`)
        : redisReport.pass(server, `version ${version}`),
    );
  }
  if (role !== '' && role !== 'master') {
    const todo = 'use the address of the primary, or redis+sentinel:// or redis+cluster://, which find it';
    // It refuses every write, whatever the user's rights.
    return [...results, redisReport.fail(server, `it is a ${role}, so nothing can be written to it`, todo)];
  }
  if (maxmemoryPolicy !== '' && maxmemoryPolicy !== 'noeviction') {
    const fact = `maxmemory-policy is ${maxmemoryPolicy}: when its memory is full, it deletes records of hubs and agents`;
    results.push(
      redisReport.warn(server, fact, 'CONFIG SET maxmemory-policy noeviction, here and in its configuration'),
    );
  }
  if (noWrites) {
    const { why, reason } = noWrites;
    const fact = `it takes no writes, because ${why}: ${reason}`;
    results.push(
      // Scripts of a plane begin with a write that it takes, and then it takes the others.
      reason.startsWith('OOM')
        ? redisReport.warn(server, `${fact}. Those of a plane it takes`, 'raise maxmemory, or see what else fills it')
        : redisReport.fail(server, fact, registryTodo(fact)),
    );
  }
  const names = [...new Set(refused.map(({ command }) => command))];
  if (noWrites && names.length === 0) return results;
  results.push(
    names.length === 0
      ? redisReport.pass(server, 'the user may run every command that a plane needs')
      : redisReport.fail(
          server,
          `the user may not run ${names.join(', ')} (${refused[0]?.reason})`,
          rights(names, plane),
        ),
  );
  return results;
}

/** Keys of a plane start with its name in braces. */
function rights(names: readonly string[], plane: string): string {
  return `ACL SETUSER name ~{${plane}}:* ${names.map((name) => `+${name.toLowerCase()}`).join(' ')}`;
}
