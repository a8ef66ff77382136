import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { rm } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { differencesOf } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';
import { VERSION } from '@isthmus/service';
import { HTTP_CREDENTIAL, inWords } from '@isthmus/tunnel';
import { Argument } from 'commander';
import { pack } from 'tar-stream';
import { type Call, command } from '../command.ts';
import { bytes, cleaned, EXIT, plural, silentText, styleOf, unansweredText, usage } from '../output.ts';
import { askPlane, sessionViews } from '../plane/evidence.ts';
import type { Answers, Member } from '../plane/member.ts';
import type { Plane } from '../plane/plane.ts';
import { agentsOf, agentsText } from './agents.ts';
import { configsOf, configView } from './config.ts';
import { hubsOf, hubsText } from './hubs.ts';
import { statusText, statusView } from './status.ts';

export const diag = command({
  name: 'diag',
  summary: 'Collect data for support into one archive, without secrets',
  details:
    'Status, members, flags, sessions, tunnels, recent dials, logs and metrics of each member, and a summary. The archive names destinations, callers and addresses: review it before you share it. An existing file is kept.',
  args: [new Argument('[file]', 'default: isthmus-diag-TIME.tar.gz')],
  examples: [
    { line: 'diag', does: 'into this directory' },
    { line: 'diag -a 10.0.0.5:8095 /tmp/plane.tar.gz', does: 'a plane on another machine' },
  ],
  async run({ args: [file], output, plane }: Call) {
    const path = file ?? `isthmus-diag-${new Date().toISOString().replaceAll(/[:.]/g, '-')}.tar.gz`;
    const { texts, members, missing } = await collect(await plane());
    const size = await writeArchive(path, texts);
    output.show({ file: path, bytes: size, members, files: [...texts.keys()], missing }, () => {
      const left = missing.map((line) => `  ${line}\n`).join('');
      const lacks = left === '' ? '' : `\nNot collected:\n${left}`;
      return `Wrote ${path}: ${plural(texts.size, 'file')} of ${plural(members.length, 'member')}, ${bytes(size)}\n${lacks}`;
    });
    return missing.length > 0 ? EXIT.unasked : EXIT.good;
  },
});

/** Returns what people read first: status, agents and hubs, as their commands print them. */
async function summaryOf(plane: Plane): Promise<string> {
  const style = styleOf(false);
  const asked = await askPlane(plane, '', false);
  const status = cleaned(statusView(asked));
  return [
    statusText(status, style) + unansweredText(status.unanswered),
    agentsText(cleaned(agentsOf(sessionViews(asked.evidence.sessions))), style),
    hubsText(cleaned(hubsOf(asked.lists.answers)), style),
  ].join('\n');
}

interface Collected {
  readonly texts: Texts;
  readonly members: readonly string[];
  /** What could not be collected, and from which member. */
  readonly missing: readonly string[];
}

/** One kind of data that every member is asked for. */
interface Part {
  readonly file: string;
  readonly read: (plane: Plane) => Promise<Answers<string>>;
}

/** Collects everything that helps to understand a plane remotely: a directory for each member, and a summary. */
async function collect(plane: Plane): Promise<Collected> {
  const texts = new Map<string, string>();
  const missing: string[] = [];
  for (const { file, read } of partsOf()) {
    const { answers, unanswered } = await read(plane);
    for (const { member, value } of answers) texts.set(`${directoryOf(member)}/${file}`, value);
    missing.push(...unanswered.map((each) => `${file} of ${silentText(each)}`));
  }
  const { answers } = await configsOf(plane);
  texts.set('differences.json', json(differencesOf(answers.map(configView))));
  const head = `Collected by isthmus ${VERSION} at ${new Date().toISOString()}\n`;
  const left = missing.length > 0 ? `\nNot collected:\n${missing.map((line) => `  ${line}\n`).join('')}` : '';
  const all = new Map([['summary.txt', `${head}\n${await summaryOf(plane).catch(inWords)}${left}`], ...texts]);
  return { texts: all, members: plane.members.map(({ id }) => id), missing };
}

function partsOf(): Part[] {
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
    {
      file: 'metrics.txt',
      read: (plane) => plane.ask(async (admin, signal) => (await admin.getMetrics({}, { signal })).text),
    },
  ];
}

async function dialsOf(admin: adminApi.AdminClient, signal: AbortSignal): Promise<string> {
  const lines: string[] = [];
  for await (const { dial } of admin.watchDials({ recentOnly: true }, { signal })) {
    if (dial) lines.push(JSON.stringify(dial));
  }
  return ndjson(lines);
}

async function logOf(admin: adminApi.AdminClient, signal: AbortSignal): Promise<string> {
  const { lines, forgotten } = await admin.recentLogs({}, { signal });
  return ndjson([JSON.stringify({ forgotten }), ...lines]);
}

function ndjson(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join('');
}

/** Ids may contain characters that a path must not. */
function directoryOf({ id }: Member): string {
  return `members/${id.replaceAll(/[^\w.-]/g, '_').replace(/^\.+/, '_')}`;
}

function json(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

/** Texts by their name in the archive. */
type Texts = ReadonlyMap<string, string>;

/**
 * Writes texts as a tar.gz that only its owner may read, with everything removed that looks like a secret. @returns its size in bytes
 * @throws Failure if the file exists or cannot be written
 */
export async function writeArchive(path: string, texts: Texts): Promise<number> {
  const file = createWriteStream(path, { flags: 'wx', mode: 0o600 });
  try {
    await once(file, 'open');
  } catch (error) {
    throw usage(`cannot write ${path}: ${inWords(error)}`);
  }
  try {
    const tar = pack();
    for (const [name, text] of texts) tar.entry({ name, mode: 0o600 }, scrubbed(text));
    tar.finalize();
    await pipeline(tar, createGzip(), file);
    return file.bytesWritten;
  } catch (error) {
    await rm(path, { force: true });
    throw usage(`cannot write ${path}: ${inWords(error)}`);
  }
}

/** What a secret looks like, and what stands in its place. */
const SECRETS: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN ([A-Z ]*)PRIVATE KEY-----[\s\S]*?(-----END \1PRIVATE KEY-----|$)/g, '[private key left out]'],
  // The user and password in a URL.
  [/([a-z][a-z+.-]*:\/\/)[^/\s"'@]*:[^/\s"'@]*@/gi, '$1***@'],
  [HTTP_CREDENTIAL, '$1 ***'],
  // A JSON Web Token, as Kubernetes' service accounts have.
  [/\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*/g, '[token left out]'],
  // `password=...`, `"token": "..."`.
  [/(\b(?:password|passwd|secret|token|authorization|api[-_]?key)\b["']?\s*[:=]\s*["']?)[^\s"',;&]{4,}/gi, '$1***'],
];

/** Removes secrets. Members already leave them out of their answers; this second pass catches those that a log may still contain. */
export function scrubbed(text: string): string {
  return SECRETS.reduce((shown, [secret, instead]) => shown.replace(secret, instead), text);
}
