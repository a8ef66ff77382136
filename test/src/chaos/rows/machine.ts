import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { type Member, type Scope, until } from '../../harness/index.ts';
import { readRecords } from '../../plane/audit-records.ts';
import { type Plane, startPlane, whole } from '../../rig/plane.ts';
import type { Context, Row } from '../row.ts';
import { descriptorRows } from './descriptors.ts';

const SHAPE = { servers: 2, agents: 4 };
const LOCAL = '127.0.0.1';

interface Disk extends Plane {
  readonly disk: string;
}

/** A small file system that is removed with the scope. */
function smallDisk(scope: Scope): string {
  const disk = mkdtempSync(`${tmpdir()}/isthmus-disk-`);
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', disk]);
  scope.defer(() => {
    execFileSync('umount', ['-l', disk]);
    rmdirSync(disk);
  });
  return disk;
}

/** Each process logs every dial to its own file on that disk, and each server audits it there. */
async function loggingToDisk(scope: Scope): Promise<Disk> {
  const disk = smallDisk(scope);
  const command = (id: string) => ['sh', '-c', 'exec "$@" 2>>"$0"', `${disk}/${id}.log`];
  const each = (id: string) => {
    const audit = id.startsWith('server') ? { 'audit-log': auditLog(disk, id) } : {};
    return { place: { command: command(id), host: LOCAL }, flags: { v: 5, ...audit } };
  };
  return { ...(await startPlane(scope, { ...SHAPE, each })), disk };
}

function auditLog(disk: string, id: string): string {
  return `${disk}/${id}.audit`;
}

const fullDisk: Row<Disk> = {
  name: 'disk-full',
  fault: 'disk full for half a minute, for all logs and audit logs',
  holds:
    'no crash, 0 failed dials; logs resume by themselves and say how many lines were lost; no audit record is lost',
  bounds: { dialMs: 1000 },
  skip: () => process.getuid?.() !== 0 && 'only root may mount a small file system',
  topology: loggingToDisk,
  async inject({ plane: { disk, gateways: servers, agents }, hold, measure }) {
    await until(async () => (await statfs(disk)).bfree === 0, { what: 'a full disk' });
    await hold(30_000, 8000);
    const files = servers.flatMap(({ id }) => [`${disk}/${id}.log`, auditLog(disk, id)]);
    const sizes = files.map((path) => statSync(path).size);
    execFileSync('mount', ['-o', 'remount,size=256m', disk]);
    const grown = () => files.every((path, index) => statSync(path).size > (sizes[index] ?? 0));
    await until(grown, { what: 'logs and audit to resume' });
    await hold(5000, 2000);
    const logs = [...servers, ...agents].map(({ id }) => readFileSync(`${disk}/${id}.log`, 'utf8'));
    const lost = logs.flatMap(lostLines);
    measure(
      'log lines lost and counted',
      lost.reduce((sum, lines) => sum + lines, 0),
    );
    const dropped = await Promise.all(servers.map(({ program }) => program.metric('isthmus_audit_dropped_total')));
    const records = dropped.flatMap((samples) => [...samples.values()]).reduce((sum, each) => sum + each, 0);
    measure('audit records lost', records, '', 0);
    const written = servers.reduce((sum, { id }) => sum + readRecords(auditLog(disk, id)).length, 0);
    measure('audit records written', written);
  },
};

function lostLines(text: string): number[] {
  return [...text.matchAll(/^\{.*"lines":(\d+),.*"log lines were lost"\}$/gm)].map(([, lines]) => Number(lines));
}

const LIBRARY = '/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1';
const JUMP = 3600;

interface Clocks extends Plane {
  /** Sets the wall clock of these processes, in seconds relative to the machine's. */
  jump(ids: readonly string[], seconds: number): void;
}

/** Each process has its own wall clock, which a file moves while it runs. */
async function movableClocks(scope: Scope): Promise<Clocks> {
  const dir = mkdtempSync(`${tmpdir()}/isthmus-clock-`);
  scope.defer(() => rmSync(dir, { recursive: true }));
  const jump = (ids: readonly string[], seconds: number) => {
    for (const id of ids) writeFileSync(`${dir}/${id}`, `${seconds < 0 ? '' : '+'}${seconds}`);
  };
  const each = (id: string) => {
    jump([id], 0);
    const settings = ['FAKETIME_NO_CACHE=1', 'FAKETIME_DONT_FAKE_MONOTONIC=1', `FAKETIME_TIMESTAMP_FILE=${dir}/${id}`];
    return { place: { command: ['env', `LD_PRELOAD=${LIBRARY}`, ...settings], host: LOCAL } };
  };
  return { ...(await startPlane(scope, { ...SHAPE, each })), jump };
}

async function jumpAndKill({ plane, strike, hold, short }: Context<Clocks>): Promise<void> {
  const all = [...plane.gateways, ...plane.agents].map(({ id }) => id);
  const [server, other] = plane.gateways as [Member, Member];
  const [agent] = plane.agents as [Member];
  for (const seconds of [JUMP, -JUMP]) {
    plane.jump(all, seconds);
    await hold(10_000, 1500);
    plane.jump([server.id, agent.id], -seconds);
    await hold(10_000, 1500);
    // Restarted before its record has expired, with a clock that is an hour behind its first start.
    plane.jump([other.id], -JUMP);
    if (!short || seconds < 0) {
      await strike(
        {
          takes: ({ gateway }) => gateway === 1,
          touches: ({ gateway, hubId }) => gateway !== 1 && hubId === other.id,
          gateway: 1,
        },
        () => other.kill(),
      );
      await other.restart();
      await whole(plane);
    }
    plane.jump(all, 0);
  }
}

const clockJumps: Row<Clocks> = {
  name: 'clock-jumps',
  fault: 'wall clocks +1 h, then -1 h, of some the other way; a server restarted with an earlier clock',
  holds: 'no crash, 0 failed dials, no session lost, recovers by itself',
  bounds: { dialMs: 1000 },
  skip: () => !existsSync(LIBRARY) && 'libfaketime is not installed',
  topology: movableClocks,
  inject: jumpAndKill,
};

export const machineRows: readonly Row[] = [fullDisk, ...descriptorRows, clockJumps];
