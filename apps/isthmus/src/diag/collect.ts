import { differencesOf } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';
import { VERSION } from '@isthmus/service';
import { configsOf, configView } from '../commands/config.ts';
import { messageOf } from '../exit.ts';
import type { Answers, Member, Unanswered } from '../plane/member.ts';
import type { Plane } from '../plane/plane.ts';
import type { Texts } from './archive.ts';

export interface Collected {
  readonly texts: Texts;
  readonly members: readonly string[];
  /** What could not be collected, and from which member. */
  readonly missing: readonly string[];
}

/** Reads a page of a member's admin port. */
export type ReadPage = (member: Member, path: string) => Promise<string>;

/** One kind of data that every member is asked for. */
interface Part {
  readonly file: string;
  readonly read: (plane: Plane) => Promise<Answers<string>>;
}

/** Collects everything that helps to understand a plane remotely: a directory for each member, and a summary. */
export async function collect(plane: Plane, readPage: ReadPage, summary: () => Promise<string>): Promise<Collected> {
  const texts = new Map<string, string>();
  const missing: string[] = [];
  for (const { file, read } of partsOf(readPage)) {
    const { answers, unanswered } = await read(plane);
    for (const { member, value } of answers) texts.set(`${directoryOf(member)}/${file}`, value);
    missing.push(...unanswered.map((each) => missed(file, each)));
  }
  const { answers } = await configsOf(plane);
  texts.set('differences.json', json(differencesOf(answers.map(configView))));
  const head = `Collected by isthmus ${VERSION} at ${new Date().toISOString()}\n`;
  const left = missing.length > 0 ? `\nNot collected:\n${missing.map((line) => `  ${line}\n`).join('')}` : '';
  const all = new Map([['summary.txt', `${head}\n${await summary().catch(messageOf)}${left}`], ...texts]);
  return { texts: all, members: plane.members.map(({ id }) => id), missing };
}

function partsOf(readPage: ReadPage): Part[] {
  const part = <T>(file: string, ask: (admin: adminApi.AdminClient, signal: AbortSignal) => Promise<T>): Part => {
    return { file, read: (plane) => plane.ask(async (admin, signal) => json(await ask(admin, signal))) };
  };
  return [
    part('status.json', (admin, signal) => admin.getStatus({}, { signal })),
    part('members.json', (admin, signal) => admin.listMembers({}, { signal })),
    part('config.json', (admin, signal) => admin.getConfig({}, { signal })),
    part('sessions.json', (admin, signal) => admin.listSessions({}, { signal })),
    part('tunnels.json', (admin, signal) => admin.listTunnels({}, { signal })),
    { file: 'dials.ndjson', read: (plane) => plane.ask(dialsOf) },
    { file: 'log.ndjson', read: (plane) => plane.ask(logOf) },
    { file: 'metrics.txt', read: (plane) => plane.ask((_admin, _signal, member) => readPage(member, '/metrics')) },
  ];
}

async function dialsOf(admin: adminApi.AdminClient, signal: AbortSignal): Promise<string> {
  const lines: string[] = [];
  for await (const { dial } of admin.watchDials({ recentOnly: true }, { signal })) {
    if (dial) lines.push(JSON.stringify(plain(dial)));
  }
  return ndjson(lines);
}

async function logOf(admin: adminApi.AdminClient, signal: AbortSignal): Promise<string> {
  const { lines, forgotten } = await admin.recentLogs({}, { signal });
  return ndjson([JSON.stringify({ forgotten: Number(forgotten) }), ...lines]);
}

function ndjson(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join('');
}

/** Ids may contain characters that a path must not. */
function directoryOf({ id }: Member): string {
  return `members/${id.replaceAll(/[^\w.-]/g, '_').replace(/^\.+/, '_')}`;
}

function missed(file: string, { member, address, reason }: Unanswered): string {
  return `${file} of ${member}${address === '' || address === member ? '' : ` at ${address}`}: ${reason}`;
}

function json(value: unknown): string {
  return `${JSON.stringify(plain(value), null, 2)}\n`;
}

/** JSON has no bigint. Counts and times stay below 2^53. */
function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value, (_key, each) => (typeof each === 'bigint' ? Number(each) : each)) ?? 'null');
}
