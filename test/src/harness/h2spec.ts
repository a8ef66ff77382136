import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import type { Identity } from '@isthmus/certificates/testing';
import { goProgram } from './go-program.ts';

const RUN_MS = 5 * 60_000;

export interface H2specTarget {
  /** A port of 127.0.0.1, with TLS and ALPN `h2`. */
  readonly port: number;
  /** Shown if the port asks for a client certificate. */
  readonly identity: Identity;
  readonly method: string;
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The result of one of h2spec's cases. */
export interface H2specResult {
  /** `http2/6.5.3/1`: the suite, the section and the case. */
  readonly id: string;
  readonly desc: string;
  readonly outcome: 'passed' | 'failed' | 'skipped';
  readonly expected?: string;
  readonly actual?: string;
}

/** Runs every case of h2spec (https://github.com/summerwind/h2spec) against a port. */
export async function h2spec({ port, identity, method, path, headers = {} }: H2specTarget): Promise<H2specResult[]> {
  const program = await goProgram('h2spec', ownHeaders);
  const fields = Object.entries(headers).flatMap(([name, value]) => ['-header', `${name}=${value}`]);
  const { stdout } = await promisify(execFile)(
    program,
    ['-port', `${port}`, '-cert', identity.cert, '-key', identity.key, '-method', method, '-path', path, ...fields],
    { timeout: RUN_MS, maxBuffer: 16 << 20 },
  );
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as H2specResult);
}

/** h2spec builds its request in a function. As a variable, our program can replace it. */
async function ownHeaders(vendor: string): Promise<void> {
  const path = `${vendor}/github.com/summerwind/h2spec/spec/util.go`;
  const source = await readFile(path, 'utf8');
  const changed = source.replace(/^func CommonHeaders\(/m, 'var CommonHeaders = commonHeaders\n\nfunc commonHeaders(');
  if (changed === source) throw new Error(`${path} has no func CommonHeaders`);
  await writeFile(path, changed);
}
