import { FINDINGS } from '@isthmus/findings';
import { Argument } from 'commander';
import { type Call, command } from '../command.ts';
import { EXIT, usage } from '../exit.ts';
import type { Column } from '../output/fit.ts';
import type { Style } from '../output/style.ts';
import { table } from '../output/table.ts';
import { statusOf, unansweredText } from '../output/unanswered.ts';
import { plural } from '../output/units.ts';
import type { Unanswered } from '../plane/member.ts';
import type { Plane } from '../plane/plane.ts';
import type { CheckedFiles, FileProblem } from '../tenants/check-files.ts';
import { fullest, type ProblemView, problemViews, type TenantView, tenantViews } from '../tenants/views.ts';

export interface TenantsView {
  /** Some member has --tenants-dir. */
  readonly configured: boolean;
  readonly tenants: readonly TenantView[];
  readonly problems: readonly ProblemView[];
  readonly unanswered: readonly Unanswered[];
}

export const tenants = command({
  name: 'tenants',
  summary: 'List tenants with what they use, or check their files before servers read them',
  details:
    'A list has the tenants in force, the agents and callers of each, its fullest limit, and the files that cannot be used. Limits hold in each process by itself; -o json has them all. With check, it asks no server: it reads files, or all files of a directory, with the certificates and keys that they name, and prints FILE:LINE:COLUMN: what is wrong. Exits with 1 if a file cannot be used.',
  args: [
    new Argument('[action]', 'check reads files, and asks no server').choices(['check']),
    new Argument('[file...]', 'files to check, or directories of them'),
  ],
  examples: [
    { line: 'tenants', does: 'the tenants of a running plane' },
    { line: 'tenants --tenant acme -o json', does: 'all that is known of one' },
    { line: 'tenants check tenants/', does: 'before it becomes a ConfigMap' },
  ],
  async run({ args, options, output, plane }: Call) {
    const [action, files = []] = args as readonly [string | undefined, (readonly string[])?];
    if (action === undefined) {
      const view = await tenantsOf(await plane(), options.tenant);
      output.show(view, () => tenantsText(view, output.style));
      return statusOf(view.problems.length > 0, view.unanswered);
    }
    if (files.length === 0) throw usage('name files, or a directory of them: isthmus tenants check FILE...');
    // It needs all that a server knows of tenants' files, which other commands do not load.
    const { checkTenantFiles } = await import('../tenants/check-files.ts');
    const checked = await checkTenantFiles(files);
    output.show(checked, checkedText);
    return checked.problems.length > 0 ? EXIT.wrong : EXIT.good;
  },
});

async function tenantsOf(plane: Plane, tenant: string): Promise<TenantsView> {
  const { answers, unanswered } = await plane.ask(
    (admin, signal) => admin.listTenants({ tenant }, { signal }),
    'gateway',
    'hub',
  );
  return {
    configured: answers.some(({ value }) => value.configured),
    tenants: tenantViews(answers),
    problems: problemViews(answers),
    unanswered,
  };
}

const COLUMNS: readonly Column[] = [
  { name: 'tenant', least: 10 },
  { name: 'agents', right: true },
  { name: 'sessions', right: true },
  { name: 'tunnels', right: true },
  { name: 'pending', right: true, drop: 2 },
  { name: 'callers', least: 12, most: 40, drop: 3 },
  { name: 'fullest limit', least: 20 },
  { name: 'file', least: 12, drop: 1 },
];

export function tenantsText({ configured, tenants, problems, unanswered }: TenantsView, style: Style): string {
  const rows = tenants.map((each) => [
    each.tenant,
    ...[each.agents, each.sessions, each.tunnels, each.pendingDials].map(String),
    each.callers.join(','),
    limitText(each, style),
    each.file,
  ]);
  const none = configured
    ? 'No tenant is in force: nobody can connect. Put files into --tenants-dir\n'
    : 'No tenant has a session, tunnel or dial\n';
  const body = rows.length > 0 ? table(COLUMNS, rows, style) : none;
  const remark = configured ? '' : '\nNo member has --tenants-dir: agents name their tenants themselves\n';
  const lines = problems.map(({ kept, members, ...problem }) => {
    const still = kept === undefined ? '' : ` (tenant ${kept} stays as it was)`;
    return `  ${problemText(problem)}${still}, at ${members.join(', ')}\n`;
  });
  const bad = lines.length > 0 ? style.bad(`\nFiles that cannot be used:\n${lines.join('')}`) : '';
  return body + remark + bad + unansweredText(unanswered);
}

function limitText({ use }: TenantView, style: Style): string {
  const full = fullest(use);
  if (!full || full.used === 0) return '';
  const { limit, part, used, most, member } = full;
  const text = `${limit} ${Math.round(100 * part)}% (${used} of ${most} at ${member})`;
  return part >= FINDINGS.nearlyUsedUp ? style.warning(text) : text;
}

/** As compilers write it. */
export function problemText({ file, line, column, message }: FileProblem): string {
  return `${file}:${line}:${column}: ${message}`;
}

export function checkedText({ files, tenants, problems }: CheckedFiles): string {
  if (problems.length > 0) return problems.map((problem) => `${problemText(problem)}\n`).join('');
  return `${plural(files, 'file')}: ${plural(tenants.length, 'tenant')}, all can be used\n`;
}
