import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { freePort, newTrust, type Program, type Scope, startProgram, type Trust, type Via } from '../harness/index.ts';
import { kubeApi } from '../plane/kube-api.ts';
import type { CommandLine } from './command-lines.ts';

const TOKEN = 'a-token-of-an-agent';

/** A server and its agents on this machine, with the arguments of a recipe. */
export interface Running {
  readonly server: Program;
  readonly agents: readonly Program[];
  /** How its API server dials: over the unix socket of `--uds-name`, or else with a certificate. */
  readonly via: Via;
  /** `METHOD path` of every request to the API server. */
  readonly calls: readonly string[];
}

/** What moves: each program has its own root directory, and both have the same ports in place of the ones they name. */
interface Moves {
  readonly root: string;
  readonly ports: ReadonlyMap<string, number>;
  readonly hosts: ReadonlyMap<string, string>;
}

/** Starts the command lines of one recipe, a server first, with real certificates at the paths that they name. Only paths, ports and the server's address change. */
export async function run(scope: Scope, lines: readonly CommandLine[]): Promise<Running> {
  const trust = await newTrust(scope);
  const kube = await kubeApi(scope, trust);
  kube.trust(TOKEN, 'kube-system:konnectivity-agent');
  const started: { program: Program; args: readonly string[]; ports: ReadonlyMap<string, number> }[] = [];
  const shared = new Map<string, number>();
  for (const [index, { program, args }] of lines.entries()) {
    const root = join(trust.dir, String(index));
    const ports = await portsOf(args, shared);
    const hosts = new Map([[flagValue(args, 'proxy-server-host') ?? '', '127.0.0.1']]);
    const moved = move(args, { root, ports, hosts });
    await writeFiles(moved, trust, kube.kubeconfig, index);
    const health = program === 'proxy-server' ? 'health-port' : 'health-server-port';
    const admin = program === 'proxy-server' ? 'admin-port' : 'admin-server-port';
    // A port that is not named has a default, which other tests may have taken.
    const unnamed = [health, admin].filter((name) => flagValue(args, name) === undefined);
    const added = await Promise.all(unnamed.map(async (name) => [name, await freePort()] as const));
    const flags = Object.fromEntries(added);
    const healthPort = Number(flags[health] ?? flagValue(moved, health));
    started.push({ program: startProgram(scope, program, { args: moved, flags, healthPort }), args: moved, ports });
  }
  const [server, ...agents] = started;
  if (!server) throw new Error('no command line');
  const uds = flagValue(server.args, 'uds-name');
  const port = Number(flagValue(server.args, 'server-port'));
  const via = uds ? { uds } : { port, ca: trust.callers.cert, identity: trust.caller };
  await Promise.all(started.map(({ program }) => program.waitReady()));
  return { server: server.program, agents: agents.map(({ program }) => program), via, calls: kube.api.calls };
}

/** Returns a flag's value: behind an equals sign, or the next argument. */
export function flagValue(args: readonly string[], flag: string): string | undefined {
  const at = args.findIndex((arg) => arg === `--${flag}` || arg.startsWith(`--${flag}=`));
  const arg = args[at];
  if (arg === undefined) return undefined;
  return arg.includes('=') ? arg.slice(arg.indexOf('=') + 1) : args[at + 1];
}

/** The ports on which agents meet the server are the same for all programs; each has others of its own. */
const MEETING = new Set(['agent-port', 'proxy-server-port']);

async function portsOf(args: readonly string[], shared: Map<string, number>): Promise<Map<string, number>> {
  const ports = new Map<string, number>();
  for (const arg of args) {
    const name = /^--([\w-]+-port)\b/.exec(arg)?.[1];
    const port = name && flagValue(args, name);
    if (!name || !port || port === '0') continue;
    const meeting = MEETING.has(name);
    const chosen = (meeting && shared.get(port)) || (await freePort());
    if (meeting) shared.set(port, chosen);
    ports.set(port, chosen);
  }
  return ports;
}

function move(args: readonly string[], { root, ports, hosts }: Moves): string[] {
  return args.map((arg) => {
    const [, before = '', value = arg] = /^(-[^=]*=)(.*)$/s.exec(arg) ?? [];
    const moved = value.startsWith('/') ? join(root, value) : (hosts.get(value) ?? ports.get(value) ?? value);
    return `${before}${moved}`;
  });
}

/** Puts a real file wherever a flag names one. */
async function writeFiles(args: readonly string[], trust: Trust, kubeconfig: string, index: number): Promise<void> {
  const [cluster, callers, agent] = await Promise.all([
    trust.agents.server(),
    trust.callers.server(),
    trust.agents.client(`agent-${index}`),
  ]);
  const token = join(trust.dir, 'token');
  await writeFile(token, TOKEN, { mode: 0o600 });
  const files: Readonly<Record<string, string>> = {
    'cluster-cert': cluster.cert,
    'cluster-key': cluster.key,
    'cluster-ca-cert': trust.agents.cert,
    'server-cert': callers.cert,
    'server-key': callers.key,
    'server-ca-cert': trust.callers.cert,
    'ca-cert': trust.agents.cert,
    'agent-cert': agent.cert,
    'agent-key': agent.key,
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
