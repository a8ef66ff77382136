import assert from 'node:assert/strict';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Authority } from '@isthmus/certificates/testing';
import type { FlagTable } from '../flag.ts';
import { parseFlags } from '../parse.ts';
import { backendHub, frontendGateway, type ProgramFlags, proxyAgent, proxyServer } from '../programs.ts';

/** Returns the warnings of a valid command line. Throws what is wrong with an invalid one. */
export function check<T extends FlagTable>(program: ProgramFlags<T>, ...args: readonly string[]): string[] {
  const { values, warnings } = parseFlags(program.flags, args, {});
  const all = [...warnings];
  program.check(values, (warning) => all.push(warning));
  return all;
}

/** Runs each line and compares the error. */
export function refuses(program: (...args: string[]) => string[], rows: readonly [string, string | RegExp][]): void {
  for (const [line, message] of rows) {
    assert.throws(() => program(...line.split(' ').filter(Boolean)), { name: 'FlagError', message }, line);
  }
}

/** Makes certificates in a directory, which the caller removes, and returns valid command lines with them, to which tests add. */
export async function commandLines() {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-flags-'));
  const authority = await Authority.create(dir, 'test');
  const adminCa = (await Authority.create(dir, 'operators')).cert;
  const callersCa = (await Authority.create(dir, 'callers')).cert;
  const ca = authority.cert;
  const [one, other] = [await authority.server(), await authority.server()];

  const uds = () => ['--uds-name', join(dir, 's'), '--server-port=0'];
  const cluster = () => [`--cluster-cert=${one.cert}`, `--cluster-key=${one.key}`, `--cluster-ca-cert=${ca}`];
  const callers = () => [`--server-cert=${one.cert}`, `--server-key=${one.key}`, `--server-ca-cert=${callersCa}`];
  const peers = () => [`--peer-cert=${one.cert}`, `--peer-key=${one.key}`, `--peer-ca-cert=${ca}`];
  const redis = () => ['--redis-url=redis://127.0.0.1:6379'];
  const server = (...args: string[]) => check(proxyServer, ...uds(), ...cluster(), ...args);
  const gateway = (...args: string[]) => check(frontendGateway, ...uds(), ...redis(), ...peers(), ...args);
  const hub = (...args: string[]) =>
    check(backendHub, ...cluster(), ...peers(), ...redis(), '--advertise-address=10.0.0.1:8097', ...args);
  const agent = (...args: string[]) => check(proxyAgent, `--ca-cert=${ca}`, ...args);
  const files = { dir, ca, callersCa, adminCa, one, other };
  return { ...files, uds, cluster, callers, peers, redis, server, gateway, hub, agent };
}
