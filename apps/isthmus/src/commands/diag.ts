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
import { bytes, cleaned, EXIT, plural, silentText, styleOf, unansweredText, unwritten } from '../output.ts';
import { askPlane, sessionViews } from '../plane/evidence.ts';
import type { Answer, Answers, Member, Unanswered } from '../plane/member.ts';
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
  examples: {
    diag: 'into this directory',
    'diag -a 10.0.0.5:8095 /tmp/plane.tar.gz': 'a plane on another machine',
  },
  async run({ args: [file], output, plane }: Call) {
    const path = file ?? `isthmus-diag-${new Date().toISOString().replaceAll(/[:.]/g, '-')}.tar.gz`;
    const { texts, members, missing } = await collect(await plane());
    const size = await writeArchive(path, texts);
    const view = { file: path, bytes: size, members, files: [...texts.keys()], missing };
    output.show(view, (clean) => {
      const wrote = `Wrote ${clean.file}: ${plural(texts.size, 'file')} of ${plural(members.length, 'member')}`;
      return `${wrote}, ${bytes(size)}\n${missingText(clean.missing)}`;
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

/** Collects everything that helps to understand a plane remotely: a directory for each member, and a summary. */
async function collect(plane: Plane) {
  const texts = new Map<string, string>();
  // What could not be collected, and from which member.
  const missing: string[] = [];
  for (const [file, read] of Object.entries(partsOf(plane))) {
    const { answers, unanswered } = await read();
    for (const { member, value } of answers) texts.set(`${directoryOf(member)}/${file}`, value);
    missing.push(...unanswered.map((each) => `${file} of ${silentText(each)}`));
  }
  const { answers } = await configsOf(plane);
  texts.set('differences.json', json(differencesOf(answers.map(configView))));
  const head = `Collected by isthmus ${VERSION} at ${new Date().toISOString()}\n`;
  const left = missingText(cleaned(missing));
  const all = new Map([['summary.txt', `${head}\n${await summaryOf(plane).catch(inWords)}${left}`], ...texts]);
  return { texts: all, members: plane.members.map(({ id }) => id), missing };
}

function missingText(missing: readonly string[]): string {
  return missing.length > 0 ? `\nNot collected:\n${missing.map((line) => `  ${line}\n`).join('')}` : '';
}

/** What every member is asked for, by the file of its answer. */
function partsOf(plane: Plane): Record<string, () => Promise<Answers<string>>> {
  const part =
    <T>(ask: () => Promise<Answers<T>>, textOf: (value: T) => string = json) =>
    async () => {
      const { answers, unanswered } = await ask();
      return { answers: answers.map(({ member, value }) => ({ member, value: textOf(value) })), unanswered };
    };
  const log = ({ lines, forgotten }: adminApi.RecentLogsResponse) => ndjson([JSON.stringify({ forgotten }), ...lines]);
  return {
    'status.json': part(() => plane.ask('getStatus', {})),
    'members.json': part(() => plane.ask('listMembers', {})),
    'config.json': part(() => plane.ask('getConfig', {})),
    'sessions.json': part(() => plane.ask('listSessions', {})),
    'tunnels.json': part(() => plane.ask('listTunnels', {})),
    'dials.ndjson': () => dialsOf(plane),
    'log.ndjson': part(() => plane.ask('recentLogs', {}), log),
    'metrics.txt': part(
      () => plane.ask('getMetrics', {}),
      ({ text }) => text,
    ),
  };
}

async function dialsOf(plane: Plane): Promise<Answers<string>> {
  const all = plane.answering.map(async (member): Promise<Answer<string> | Unanswered> => {
    const dials: string[] = [];
    try {
      for await (const { answer, error } of plane.lines('watchDials', { recentOnly: true }, [member])) {
        if (error) throw error;
        if (answer.dial) dials.push(JSON.stringify(answer.dial));
      }
      return { member, value: ndjson(dials) };
    } catch (error) {
      return { member: member.id, address: member.address, reason: plane.reason(error) };
    }
  });
  const told = await Promise.all(all);
  return { answers: told.filter((each) => 'value' in each), unanswered: told.filter((each) => 'reason' in each) };
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
    throw unwritten(path, error);
  }
  try {
    const tar = pack();
    for (const [name, text] of texts) tar.entry({ name, mode: 0o600 }, scrubbed(text));
    tar.finalize();
    await pipeline(tar, createGzip(), file);
    return file.bytesWritten;
  } catch (error) {
    await rm(path, { force: true });
    throw unwritten(path, error);
  }
}

/** What a secret looks like, and what stands in its place. */
const SECRETS: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN ([A-Z ]*)PRIVATE KEY-----[\s\S]*?(-----END \1PRIVATE KEY-----|$)/g, '[private key left out]'],
  // The user and password in a URL.
  [/(:\/\/)[^:/\s"'@]*:[^/\s"'@]*@/g, '$1***@'],
  [HTTP_CREDENTIAL, '$1 ***'],
  // `password=...`, `"token": "..."`.
  [/(\b(?:password|passwd|secret|token|authorization|api[-_]?key)\b["']?\s*[:=]\s*["']?)[^\s"',;&]{4,}/gi, '$1***'],
];

/** A JSON Web Token, as Kubernetes' service accounts have. What only begins as one is passed over as a whole. */
const TOKEN = /eyJ[\w-]+(\.[\w-]{8,}\.[\w-]*)?/g;

/** Removes secrets. Members already leave them out of their answers; this second pass catches those that a log may still contain. */
export function scrubbed(text: string): string {
  const shown = SECRETS.reduce((left, [secret, instead]) => left.replace(secret, instead), text);
  return shown.replace(TOKEN, (found, rest) => (rest ? '[token left out]' : found));
}
