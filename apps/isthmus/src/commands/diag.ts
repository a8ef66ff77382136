import { Argument } from 'commander';
import { type Call, command } from '../command.ts';
import { writeArchive } from '../diag/archive.ts';
import { collect } from '../diag/collect.ts';
import { EXIT } from '../exit.ts';
import { styleOf } from '../output/style.ts';
import { bytes, plural } from '../output/units.ts';
import { askPlane } from '../plane/evidence.ts';
import { readPage } from '../plane/page.ts';
import type { Plane } from '../plane/plane.ts';
import { sessionViews } from '../plane/sessions.ts';
import { readTls } from '../plane/tls.ts';
import { agentsOf, agentsText } from './agents.ts';
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
  async run({ args: [file], options, output, plane }: Call) {
    const path = file ?? `isthmus-diag-${new Date().toISOString().replaceAll(/[:.]/g, '-')}.tar.gz`;
    const tls = readTls(options);
    const met = await plane();
    const page = (address: string, of: string) =>
      readPage(address, of, { tls, signal: AbortSignal.timeout(options.timeout) });
    const { texts, members, missing } = await collect(
      met,
      (member, of) => page(member.address, of),
      () => summaryOf(met),
    );
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
  const { lists, sessions } = asked;
  const hubs = lists.answers.map(({ member, value }) => ({ member, value: value.hubs }));
  return [
    statusText(statusView(asked), style),
    agentsText({ agents: agentsOf(sessionViews(sessions)), unanswered: [] }, style),
    hubsText({ hubs: hubsOf(hubs, new Map()), unanswered: [] }, style),
  ].join('\n');
}
