import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import type { Hosts, Use } from '@isthmus/certificates';
import { ADMIN_SERVER_NAME, GATEWAY_NAME, HUB_SERVER_NAME } from '@isthmus/tunnel';
import { unwritten, usage } from '../output.ts';

const DAY_MS = 86_400_000;

/** Who gets a certificate, as the command line says. */
export interface Parties {
  /** Names and addresses of gateways and hubs. */
  readonly host: readonly string[];
  readonly agent: readonly string[];
  readonly caller: string;
  readonly operator: string;
  readonly days: number;
}

export type Made = Omit<Awaited<ReturnType<typeof makeCertificates>>, 'texts'>;

interface Wanted {
  /** The party that trusts it. Each party has its own authority. */
  readonly party: 'callers' | 'agents' | 'peers' | 'admin';
  readonly file: string;
  readonly commonName: string;
  /** Unset for a client's. */
  readonly hosts?: readonly string[];
  readonly uses?: readonly Use[];
  readonly is: string;
}

/** PEM texts by the name of their file: `callers-ca.pem`, `callers-ca-key.pem`, `callers-server.pem` and so on. */
export type Texts = ReadonlyMap<string, string>;

/** Makes all certificates, and writes them. Writes nothing if one of the files exists and `force` is not set. */
export async function makeCertificates(dir: string, options: Parties & { readonly force?: true }) {
  const all = wanted(options);
  const parties = partiesOf(all);
  const stems = [...parties.map((party) => `${party}-ca`), ...all.map(({ file }) => file)];
  const paths = stems.flatMap((stem) => [join(dir, `${stem}.pem`), join(dir, `${stem}-key.pem`)]);
  const there = paths.filter((path) => existsSync(path));
  if (there.length > 0 && !options.force)
    throw usage(`${there.join(', ')} exist already: nothing was written. --force overwrites them`);
  const texts = await issueCertificates(options);
  await write(dir, texts);
  return { dir, files: listed(parties, all), flags: flagsFor(dir, options), texts };
}

/** Makes all certificates in memory. */
export async function issueCertificates(options: Parties): Promise<Texts> {
  const { days } = options;
  const all = wanted(options);
  const { CertificateAuthority } = await import('@isthmus/certificates');
  const texts = new Map<string, string>();
  for (const party of partiesOf(all)) {
    const authority = await CertificateAuthority.create(`isthmus ${party}`, 10 * days * DAY_MS);
    texts.set(`${party}-ca.pem`, authority.cert).set(`${party}-ca-key.pem`, await authority.key());
    for (const { file, commonName, hosts, uses } of all.filter((each) => each.party === party)) {
      const issued = { commonName, validMs: days * DAY_MS, hosts: hosts && hostNames(hosts), uses };
      const { cert, key } = await authority.issue(issued);
      texts.set(`${file}.pem`, cert).set(`${file}-key.pem`, key);
    }
  }
  return texts;
}

function partiesOf(all: readonly Wanted[]): Wanted['party'][] {
  return [...new Set(all.map(({ party }) => party))];
}

function wanted({ agent: agents, caller, operator, host: hosts }: Parties): Wanted[] {
  const [name = 'localhost'] = hosts;
  const server = (party: Wanted['party'], is: string, names: readonly string[] = []): Wanted => {
    return { party, file: `${party}-server`, commonName: name, hosts: [...hosts, ...names], is };
  };
  // Gateways and hubs prove their role to each other, and no address; a server that is both has both.
  const peer = (file: string, names: readonly string[], uses: readonly Use[], is: string): Wanted => {
    return { party: 'peers', file, commonName: file, hosts: names, uses, is };
  };
  return [
    server('callers', 'what gateways present to callers'),
    { party: 'callers', file: `callers-${caller}`, commonName: caller, is: `the caller ${caller}` },
    server('agents', 'what hubs present to agents'),
    ...agents.map((agent): Wanted => {
      return { party: 'agents', file: `agents-${agent}`, commonName: agent, is: `the agent ${agent}` };
    }),
    peer('peers-gateway', [GATEWAY_NAME], ['client'], 'what gateways present to hubs'),
    peer('peers-hub', [HUB_SERVER_NAME], ['server'], 'what hubs present to gateways'),
    peer(
      'peers-server',
      [GATEWAY_NAME, HUB_SERVER_NAME],
      ['client', 'server'],
      'what a proxy-server, which is both, presents to its peers',
    ),
    // Pods' addresses come and go: an admin port may show this name in place of its address.
    server('admin', 'what admin ports present', [ADMIN_SERVER_NAME]),
    { party: 'admin', file: `admin-${operator}`, commonName: operator, is: `the operator ${operator}` },
  ];
}

function hostNames(hosts: readonly string[]): Hosts {
  return hosts.map((value) => ({ type: isIP(value) === 0 ? 'dns' : 'ip', value }));
}

async function write(dir: string, texts: Texts): Promise<void> {
  try {
    await mkdir(dir, { recursive: true });
    for (const [name, text] of texts) {
      // An existing file keeps its mode, so keys get theirs when they are created.
      await writeFile(join(dir, name), text, { mode: name.endsWith('-key.pem') ? 0o600 : 0o644 });
    }
  } catch (error) {
    throw unwritten(dir, error);
  }
}

/** The file of each certificate, that of its private key, and what it is, for people. */
function listed(parties: readonly string[], all: readonly Wanted[]) {
  return [
    ...parties.map((party) => ({
      path: `${party}-ca.pem`,
      key: `${party}-ca-key.pem`,
      is: `CA of ${party}; keep its key off the machines of the plane`,
    })),
    ...all.map(({ file, is }) => ({ path: `${file}.pem`, key: `${file}-key.pem`, is })),
  ];
}

/** The flags of each program that name the files, each as its own argument. A program may have a name behind it: `proxy-agent (node-a)`. */
function flagsFor(dir: string, { agent: agents, caller, operator }: Parties) {
  const given = (values: Readonly<Record<string, string>>) =>
    Object.entries(values).map(([name, file]) => `--${name}=${join(dir, file)}`);
  const apart = (values: Readonly<Record<string, string>>) =>
    Object.entries(values).flatMap(([name, file]) => [`--${name}`, join(dir, file)]);
  const identity = (prefix: string, file: string) => ({
    [`${prefix}cert`]: `${file}.pem`,
    [`${prefix}key`]: `${file}-key.pem`,
  });
  const callers = { ...identity('server-', 'callers-server'), 'server-ca-cert': 'callers-ca.pem' };
  const cluster = { ...identity('cluster-', 'agents-server'), 'cluster-ca-cert': 'agents-ca.pem' };
  const peers = (role: string) => ({ ...identity('peer-', `peers-${role}`), 'peer-ca-cert': 'peers-ca.pem' });
  const admin = { ...identity('admin-server-', 'admin-server'), 'admin-ca-cert': 'admin-ca.pem' };
  const named = (program: string, id: string, files: Readonly<Record<string, string>>) => {
    return { program, flags: [`--server-id=${id}`, ...given(files)] };
  };
  return [
    named('proxy-server', 'server-1', { ...callers, ...cluster, ...peers('server'), ...admin }),
    named('frontend-gw', 'gateway-1', { ...callers, ...peers('gateway'), ...admin }),
    named('backend-hub', 'hub-1', { ...cluster, ...peers('hub'), ...admin }),
    ...agents.map((agent) => ({
      program: `proxy-agent (${agent})`,
      flags: [
        `--agent-id=${agent}`,
        ...given({ 'ca-cert': 'agents-ca.pem', ...identity('agent-', `agents-${agent}`) }),
      ],
    })),
    { program: `isthmus (${operator})`, flags: given({ ca: 'admin-ca.pem', ...identity('', `admin-${operator}`) }) },
    {
      program: `curl (${caller})`,
      // curl does not support `--flag=value`.
      flags: apart({ ...identity('proxy-', `callers-${caller}`), 'proxy-cacert': 'callers-ca.pem' }),
    },
  ];
}
