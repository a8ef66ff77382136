import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import {
  commandOf,
  type Flags,
  freePort,
  newTrust,
  type Program,
  relayTo,
  type Scope,
  startCommand,
  startProgram,
  type Trust,
  type Via,
} from '../harness/index.ts';
import { kubeApi } from '../plane/kube-api.ts';
import type { CommandLine } from './command-lines.ts';

/** Of the service account in the manifests of others, and of the one in ours. */
const TOKEN = 'a-token-of-an-agent';
const TOKEN_OF_OURS = 'a-token-of-our-agent';

/** Servers and agents on this machine, with the arguments of a recipe. */
export interface Running {
  readonly servers: readonly Program[];
  readonly agents: readonly Program[];
  /** How the API server beside each server dials: over the unix socket of `--uds-name`, or else with a certificate. */
  readonly vias: readonly Via[];
  /** `METHOD path` of every request to the API server. */
  readonly calls: readonly string[];
  /** Starts a server that has ended again, as the same. */
  restart(server: number): Promise<void>;
}

/** What every program of a recipe finds. */
interface Place {
  readonly scope: Scope;
  readonly trust: Trust;
  readonly kubeconfig: string;
  /** Flags of servers that come after a recipe's own, to take their place. */
  readonly serverFlags: Flags;
}

interface Started {
  readonly program: Program;
  /** Starts it once more. */
  again(): Program;
  /** As they were passed to it. */
  readonly args: readonly string[];
}

/**
 * Starts the command lines of one recipe, with real certificates at the paths that they name. Agents reach the servers through a load
 * balancer. Only paths, ports and the server's address change.
 */
export async function run(scope: Scope, lines: readonly CommandLine[], serverFlags: Flags = {}): Promise<Running> {
  const trust = await newTrust(scope);
  const kube = await kubeApi(scope, trust);
  kube.trust(TOKEN, 'kube-system:konnectivity-agent');
  kube.trust(TOKEN_OF_OURS, 'isthmus-agent:agent');
  const place = { scope, trust, kubeconfig: kube.kubeconfig, serverFlags };
  const servers: Started[] = [];
  for (const { args } of lines.filter(({ program }) => program === 'proxy-server'))
    servers.push(await start(place, servers.length, 'proxy-server', args));
  const balancer = await relayTo(scope, ...servers.map(({ args }) => Number(flagValue(args, 'agent-port'))));
  const agents: Started[] = [];
  for (const { args } of lines.filter(({ program }) => program === 'proxy-agent'))
    agents.push(await start(place, servers.length + agents.length, 'proxy-agent', args, balancer.port));
  await Promise.all([...servers, ...agents].map(({ program }) => program.waitReady()));
  const vias = servers.map(({ args }): Via => {
    const uds = flagValue(args, 'uds-name');
    const port = Number(flagValue(args, 'server-port'));
    return uds ? { uds } : { port, ca: trust.callers.cert, identity: trust.caller };
  });
  const programs = ({ program }: Started) => program;
  const restart = async (server: number) => servers[server]?.again().waitReady();
  return { servers: servers.map(programs), agents: agents.map(programs), vias, calls: kube.api.calls, restart };
}

/** Starts `isthmus hold` with a recipe's arguments beside a server. @returns how the API server dials it */
export async function hold(
  scope: Scope,
  args: readonly string[],
  server: Via,
): Promise<{ program: Program; via: Via }> {
  const [root = ''] = 'uds' in server ? server.uds.split('/etc/kubernetes/') : [];
  const hosts = new Map([['node-ip', '127.0.0.1']]);
  const moved = move(args, { root, ports: await portsOf(args), hosts });
  const healthPort = Number(flagValue(moved, 'health-port'));
  const flags = { 'log-format': 'json' };
  const program = startCommand(scope, [...commandOf('isthmus'), 'hold'], { args: moved, flags, healthPort });
  await program.waitReady();
  return { program, via: { uds: flagValue(moved, 'uds-name') ?? '' } };
}

/** Flags whose port has a default, which other tests may have taken. */
const DEFAULTS = {
  'proxy-server': { health: 'health-port', admin: 'admin-port' },
  'proxy-agent': { health: 'health-server-port', admin: 'admin-server-port' },
} as const;

/** @param serverPort where an agent finds its servers */
async function start(
  { scope, trust, kubeconfig, serverFlags }: Place,
  index: number,
  program: CommandLine['program'],
  args: readonly string[],
  serverPort?: number,
): Promise<Started> {
  const host = flagValue(args, 'proxy-server-host') ?? '';
  const moved = move(args, {
    root: join(trust.dir, String(index)),
    ports: await portsOf(args, serverPort),
    hosts: new Map([host, 'node-ip'].map((name) => [name, '127.0.0.1'])),
  });
  await writeFiles(moved, trust, kubeconfig, index);
  const { health, admin } = DEFAULTS[program];
  const flags: Record<string, Flags[string]> = program === 'proxy-server' ? { ...serverFlags } : {};
  for (const name of [health, admin]) if (flagValue(args, name) === undefined) flags[name] = await freePort();
  const healthPort = Number(flags[health] ?? flagValue(moved, health));
  const again = () => startProgram(scope, program, { args: moved, flags, healthPort });
  return { program: again(), again, args: moved };
}

/** Returns a flag's value: behind an equals sign, or the next argument. */
export function flagValue(args: readonly string[], flag: string): string | undefined {
  const at = args.findIndex((arg) => arg === `--${flag}` || arg.startsWith(`--${flag}=`));
  const arg = args[at];
  if (arg === undefined) return undefined;
  return arg.includes('=') ? arg.slice(arg.indexOf('=') + 1) : args[at + 1];
}

/** Returns a free port for each port that the arguments name. */
async function portsOf(args: readonly string[], serverPort?: number): Promise<Map<string, number>> {
  const ports = new Map<string, number>();
  for (const arg of args) {
    const name = /^--([\w-]+-port)\b/.exec(arg)?.[1];
    const port = name && flagValue(args, name);
    if (!name || !port || port === '0') continue;
    ports.set(port, (name === 'proxy-server-port' && serverPort) || (await freePort()));
  }
  return ports;
}

/** What moves: each program has its own root directory, other ports, and finds its server here. */
export interface Moves {
  readonly root: string;
  readonly ports: ReadonlyMap<string, number>;
  readonly hosts: ReadonlyMap<string, string>;
}

/** Returns arguments that work on this machine. */
export function move(args: readonly string[], { root, ports, hosts }: Moves): string[] {
  return args.map((arg) => {
    const [, before = '', value = arg] = /^(-[^=]*=)(.*)$/s.exec(arg) ?? [];
    if (value.startsWith('/')) return before + join(root, value);
    const [, address = '', port = ''] = /^([\w.-]+):(\d+)$/.exec(value) ?? [];
    if (address !== '' && hosts.has(address)) return `${before}${hosts.get(address)}:${ports.get(port) ?? port}`;
    return `${before}${hosts.get(value) ?? ports.get(value) ?? value}`;
  });
}

/** Puts a real file wherever a flag names one. */
async function writeFiles(args: readonly string[], trust: Trust, kubeconfig: string, index: number): Promise<void> {
  const [cluster, callers, peer, agent] = await Promise.all([
    trust.agents.server(),
    trust.callers.server(),
    trust.peers.peer(['gateway', 'hub']),
    trust.agents.client(`agent-${index}`),
  ]);
  const token = join(trust.dir, 'token');
  const ours = flagValue(args, 'service-account-token-path')?.endsWith('/konnectivity');
  await writeFile(token, ours ? TOKEN_OF_OURS : TOKEN, { mode: 0o600 });
  const files: Readonly<Record<string, string>> = {
    'cluster-cert': cluster.cert,
    'cluster-key': cluster.key,
    'cluster-ca-cert': trust.agents.cert,
    'server-cert': callers.cert,
    'server-key': callers.key,
    'server-ca-cert': trust.callers.cert,
    'peer-cert': peer.cert,
    'peer-key': peer.key,
    'peer-ca-cert': trust.peers.cert,
    'ca-cert': trust.agents.cert,
    'agent-cert': agent.cert,
    'agent-key': agent.key,
    'admin-server-cert': callers.cert,
    'admin-server-key': callers.key,
    'admin-ca-cert': trust.callers.cert,
    'service-account-token-path': token,
    kubeconfig,
  };
  for (const [flag, file] of Object.entries(files)) {
    const path = flagValue(args, flag);
    if (path === undefined) continue;
    await mkdir(dirname(path), { recursive: true });
    await copyFile(file, path);
  }
  const socket = flagValue(args, 'uds-name');
  if (socket !== undefined) await mkdir(dirname(socket), { recursive: true });
}
