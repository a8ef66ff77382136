import { spawn } from 'node:child_process';
import { resolve } from 'node:path';
import { printable } from '@isthmus/tunnel';
import { checkedCertificates, messageOf } from './connection.ts';

/** `exec` of a user in a kubeconfig, checked. */
export interface ExecPlugin {
  readonly apiVersion: string;
  /** A name to find in PATH, or an absolute path. */
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly installHint: string;
  /** The cluster, for a plugin that asks for it (`provideClusterInfo`). */
  readonly cluster?: object;
}

/** What a plugin answered. */
export interface ExecCredential {
  readonly token?: string;
  readonly cert?: string;
  readonly key?: string;
  /** When to ask again, in milliseconds since 1970. Unset: when the server rejects it. */
  readonly expires?: number;
}

const API_VERSIONS = ['client.authentication.k8s.io/v1', 'client.authentication.k8s.io/v1beta1'];

/** How long a plugin may take, in milliseconds: less than a call of the API, which waits for it. */
export const EXEC_TIMEOUT_MS = 8000;

/** The longest answer, in bytes. Certificates and tokens have a few thousand. */
const MAX_OUTPUT = 1024 * 1024;

/** The most of what a plugin says about a failure that is shown, in characters. */
const MAX_SAID = 300;

type Part = Readonly<Record<string, unknown>>;

/**
 * Reads the settings of a plugin, as client-go does: a command with a slash is relative to the kubeconfig.
 * @param dir of the kubeconfig
 * @throws Error that says what is wrong with them
 */
export function execPlugin(exec: unknown, dir: string, cluster: object): ExecPlugin {
  const part = mapping(exec, 'exec');
  const { apiVersion, command, args = [], env = [], interactiveMode, installHint = '', provideClusterInfo } = part;
  if (typeof apiVersion !== 'string' || !API_VERSIONS.includes(apiVersion))
    throw new Error(
      `exec: apiVersion ${JSON.stringify(apiVersion)} is not supported: want ${API_VERSIONS.join(' or ')}`,
    );
  if (typeof command !== 'string' || command === '') throw new Error('exec: command is missing');
  if (interactiveMode === 'Always')
    throw new Error('exec: interactiveMode Always needs somebody at a terminal: use a plugin that works alone');
  const words = list(args, 'exec: args');
  if (!words.every((word) => typeof word === 'string')) throw new Error('exec: args is not a list of strings');
  const variables = list(env, 'exec: env').map((each) => {
    const { name, value } = mapping(each, 'exec: env');
    if (typeof name !== 'string' || typeof value !== 'string')
      throw new Error('exec: env wants a name and a value each');
    return [name, value] as const;
  });
  return {
    apiVersion,
    command: command.includes('/') ? resolve(dir, command) : command,
    args: words as string[],
    env: Object.fromEntries(variables),
    installHint: String(installHint),
    ...(provideClusterInfo === true && { cluster }),
  };
}

function list(value: unknown, where: string): readonly unknown[] {
  if (value === null) return [];
  if (!Array.isArray(value)) throw new Error(`${where} is not a list`);
  return value;
}

function mapping(value: unknown, where: string): Part {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error(`${where} is not a mapping`);
  return value as Part;
}

/** Runs a plugin, without a shell, and reads its answer. Rejects with what the plugin did, and never with what it printed to stdout. */
export async function runPlugin(plugin: ExecPlugin, timeoutMs = EXEC_TIMEOUT_MS): Promise<ExecCredential> {
  const { apiVersion, command, cluster } = plugin;
  try {
    const info = { kind: 'ExecCredential', apiVersion, spec: { interactive: false, ...(cluster && { cluster }) } };
    return credentialOf(await outputOf(plugin, JSON.stringify(info), timeoutMs), apiVersion);
  } catch (cause) {
    throw new Error(`exec plugin ${command}: ${messageOf(cause)}`, { cause });
  }
}

function outputOf({ command, args, env, installHint }: ExecPlugin, info: string, timeoutMs: number): Promise<string> {
  return new Promise((done, reject) => {
    // A group of its own, so that what it starts ends with it.
    const child = spawn(command, args, {
      env: { ...process.env, ...env, KUBERNETES_EXEC_INFO: info },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    const out: Buffer[] = [];
    let length = 0;
    let said = '';
    const fail = (error: Error) => {
      clearTimeout(timer);
      end(child.pid);
      child.stdout.destroy();
      child.stderr.destroy();
      reject(error);
    };
    const timer = setTimeout(() => fail(new Error(`no answer within ${timeoutMs / 1000} s`)), timeoutMs);
    child.stdout.on('data', (chunk: Buffer) => {
      length += chunk.length;
      if (length > MAX_OUTPUT) fail(new Error(`its answer is longer than ${MAX_OUTPUT} bytes`));
      else out.push(chunk);
    });
    child.stderr.on('data', (chunk: Buffer) => {
      if (said.length < MAX_SAID) said += chunk.toString();
    });
    child.on('error', ({ code, message }: NodeJS.ErrnoException) => {
      const hint = installHint === '' ? '' : `: ${printable(installHint.trim().slice(0, MAX_SAID))}`;
      fail(new Error(code === 'ENOENT' ? `there is no such program${hint}` : message));
    });
    child.on('close', (status, signal) => {
      if (status === 0) {
        clearTimeout(timer);
        done(Buffer.concat(out).toString());
        return;
      }
      const why = printable(said.trim().slice(0, MAX_SAID));
      fail(new Error(`it ended with ${signal ?? `status ${status}`}${why === '' ? '' : `: ${why}`}`));
    });
  });
}

function end(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}

function credentialOf(output: string, apiVersion: string): ExecCredential {
  const answer = mapping(parsed(output), 'its answer');
  if (answer.kind !== 'ExecCredential' || answer.apiVersion !== apiVersion)
    throw new Error(`its answer is not an ExecCredential of ${apiVersion}`);
  const status = mapping(answer.status, 'status in its answer');
  const [token, cert, key] = ['token', 'clientCertificateData', 'clientKeyData'].map((name) => textOf(status, name));
  if ((cert === undefined) !== (key === undefined))
    throw new Error('clientCertificateData and clientKeyData go together, one is missing in its answer');
  if (token === undefined && cert === undefined) throw new Error('its answer has neither a token nor a certificate');
  const ends = textOf(status, 'expirationTimestamp');
  const expires = ends === undefined ? undefined : Date.parse(ends);
  if (Number.isNaN(expires)) throw new Error('expirationTimestamp in its answer is not a time');
  return {
    ...(token !== undefined && { token }),
    ...(cert !== undefined &&
      key !== undefined && { cert: checkedCertificates(cert, 'clientCertificateData in its answer'), key }),
    ...(expires !== undefined && { expires }),
  };
}

function parsed(output: string): unknown {
  try {
    return JSON.parse(output);
  } catch {
    // Without the text, which may hold the token.
    throw new Error('its answer is not JSON');
  }
}

function textOf(part: Part, name: string): string | undefined {
  const value = part[name];
  if (value === undefined || value === null || value === '') return undefined;
  if (typeof value !== 'string') throw new Error(`${name} in its answer is not a string`);
  return value;
}

/** Runs a plugin when its last answer has expired or was rejected, and not before. */
export class ExecCredentials {
  #plugin = '';
  #last: ExecCredential | undefined;

  async get(plugin: ExecPlugin): Promise<ExecCredential> {
    const text = JSON.stringify(plugin);
    const { expires = Number.POSITIVE_INFINITY } = this.#last ?? {};
    if (this.#last && this.#plugin === text && Date.now() < expires) return this.#last;
    this.#last = await runPlugin(plugin);
    this.#plugin = text;
    return this.#last;
  }

  /** Call when the server does not accept the last answer. */
  forget(): void {
    this.#last = undefined;
  }
}
