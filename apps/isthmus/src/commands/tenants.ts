import { FINDINGS } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';
import { isName } from '@isthmus/tunnel';
import { Argument, InvalidArgumentError, Option } from 'commander';
import type { Call } from '../command.ts';
import { type Kind, type ListColumn, type ListOptions, list, listCommand, rowsTable } from '../lists.ts';
import { EXIT, isoTime, plural, type Style, statusOf, usage } from '../output.ts';
import type { Answer, Unanswered } from '../plane/member.ts';
import type { CheckedFiles, FileProblem } from './tenants-check.ts';

export interface TenantsView {
  /** Some member has --tenants-dir. */
  readonly configured: boolean;
  readonly tenants: readonly TenantView[];
  readonly problems: readonly ProblemView[];
  readonly unanswered: readonly Unanswered[];
}

export const TENANTS: Kind<TenantView, Pick<TenantsView, 'configured' | 'problems'>> = {
  name: 'tenants',
  one: 'tenant',
  names: ({ tenant }) => [tenant],
  columns: () => COLUMNS,
  async ask(call) {
    const { tenant } = call.options;
    const whom = { roles: ['gateway', 'hub'] } as const;
    const { answers, unanswered } = await (await call.plane()).ask('listTenants', { tenant }, whom);
    const configured = answers.some(({ value }) => value.configured);
    const problems = problemViews(answers);
    return {
      items: tenantViews(answers),
      unanswered,
      more: () => ({ configured, problems }),
      text: (tenants, style, { more }) => tenantsText({ ...more, tenants }, style),
      status: statusOf(problems.length > 0, unanswered),
    };
  },
};

export const tenants = listCommand(TENANTS, {
  summary: 'List tenants with what they use, check their files, or make a token for callers',
  details:
    "A list has the tenants in force, the agents and callers of each, its fullest limit, and the files that cannot be used. Limits hold in each process by itself; -o json has them all. With check, it asks no server: it reads files, or all files of a directory, with the certificates and keys that they name, and prints FILE:LINE:COLUMN: what is wrong. Exits with 1 if a file cannot be used. With token, it makes a token with which a tool dials as a caller of the tenant, and the line of the tenant's file that accepts it. It asks no server, and stores nothing: the file holds its hash, below passwords (its tokens are those of an issuer), and the token is shown this once.",
  args: [
    new Argument(
      '[what]',
      'tenants to list; or check, which reads files, or token, which makes one: both ask no server; or sync, a program (isthmus tenants sync --help)',
    )
      .choices(['check', 'token', 'sync'])
      .argParser((text: string) => text),
    new Argument('[more...]', 'further tenants; files to check, or directories of them; the tenant of a token'),
  ],
  options: [
    new Option('--name <name>', "the caller's name of a token, in rules and records. Default: token").argParser(
      callerName,
    ),
  ],
  examples: {
    tenants: 'the tenants of a running plane',
    'tenants acme -o json': 'all that is known of one',
    'tenants check tenants/': 'before it becomes a ConfigMap',
    'tenants token acme --name ci': 'a token for tools that dial as ci',
  },
  asksNobody: ([what]) => what === 'check' || what === 'token',
  async run(call: Call<ListOptions & { readonly name?: string }>) {
    const { output, options } = call;
    const [what, more = []] = call.args as readonly [string | undefined, (readonly string[])?];
    if (what === 'token') {
      output.paste(await newToken(more, options.name), tokenText);
      return EXIT.good;
    }
    if (options.name !== undefined) throw usage('--name goes with tenants token');
    if (what !== 'check') return await list(TENANTS, call, what === undefined ? [] : [what, ...more]);
    if (more.length === 0) throw usage('name files, or a directory of them: isthmus tenants check FILE...');
    // It needs all that a server knows of tenants' files, which other commands do not load.
    const { checkTenantFiles } = await import('./tenants-check.ts');
    const checked = await checkTenantFiles(more);
    output.show(checked, checkedText);
    return checked.problems.length > 0 ? EXIT.wrong : EXIT.good;
  },
});

function callerName(text: string): string {
  if (text !== '' && isName(text)) return text;
  throw new InvalidArgumentError('want at most 264 characters, and only what can be printed');
}

export type NewToken = Awaited<ReturnType<typeof newToken>>;

/** Makes a token, which the tool shows, and the line about it that goes below `callers` in the tenant's file. */
async function newToken([tenant, ...more]: readonly string[], name = 'token') {
  if (tenant === undefined || more.length > 0) throw usage('name one tenant: isthmus tenants token TENANT');
  const { newPassword } = await import('@isthmus/admission');
  const { token, sha256 } = newPassword();
  return { tenant, name, token, line: `- passwords: [{name: ${JSON.stringify(name)}, sha256: "${sha256}"}]` };
}

export function tokenText({ tenant, token, line }: NewToken): string {
  return `${token}\n\nIt is not shown again. Add its hash below callers in the file of tenant ${tenant}:\n  ${line}\n`;
}

const COLUMNS: readonly ListColumn<TenantView>[] = [
  { name: 'tenant', least: 10, of: ({ tenant }) => tenant },
  { name: 'agents', right: true, of: ({ agents }) => String(agents) },
  { name: 'sessions', right: true, of: ({ sessions }) => String(sessions) },
  { name: 'tunnels', right: true, of: ({ tunnels }) => String(tunnels), moves: true },
  { name: 'pending', right: true, drop: 2, of: ({ pendingDials }) => String(pendingDials), moves: true },
  { name: 'callers', least: 12, most: 40, drop: 3, of: ({ callers }) => callers.join(',') },
  { name: 'fullest limit', least: 20, of: limitText, moves: true },
  { name: 'from', least: 12, drop: 1, of: ({ source, file }) => source || file },
];

export function tenantsText({ configured, tenants, problems }: Omit<TenantsView, 'unanswered'>, style: Style): string {
  const none = configured
    ? 'No tenant is in force: nobody can connect. Put files into --tenants-dir\n'
    : 'No tenant has a session, tunnel or dial\n';
  const body = tenants.length > 0 ? rowsTable(COLUMNS, tenants, style) : none;
  const remark = configured ? '' : '\nNo member has --tenants-dir: agents name their tenants themselves\n';
  const lines = problems.map(({ kept, members, ...problem }) => {
    const still = kept === undefined ? '' : ` (tenant ${kept} stays as it was)`;
    return `  ${problemText(problem)}${still}, at ${members.join(', ')}\n`;
  });
  const bad = lines.length > 0 ? style.bad(`\nFiles and objects with problems:\n${lines.join('')}`) : '';
  return body + remark + bad;
}

function limitText({ use }: TenantView, style: Style): string {
  const full = fullest(use);
  if (!full || full.used === 0) return '';
  const { limit, part, used, most, member } = full;
  const text = `${limit} ${Math.round(100 * part)}% (${used} of ${most} at ${member})`;
  return part >= FINDINGS.nearlyUsedUp ? style.warning(text) : text;
}

/** As compilers write it. */
function problemText({ file, line, column, message }: FileProblem): string {
  return line === 0 ? `${file}: ${message}` : `${file}:${line}:${column}: ${message}`;
}

export function checkedText({ files, tenants, problems }: CheckedFiles): string {
  if (problems.length > 0) return problems.map((problem) => `${problemText(problem)}\n`).join('');
  return `${plural(files, 'file')}: ${plural(tenants.length, 'tenant')}, all can be used\n`;
}

/** A tenant, as all members of a plane see it together. */
export type TenantView = ReturnType<typeof tenantViews>[number];

type UseView = ReturnType<typeof useView>;

/** A file that cannot be used, and the members that say so. */
interface ProblemView extends FileProblem {
  readonly members: readonly string[];
  /** The tenant that an earlier text of the file keeps in force. */
  readonly kept?: string;
}

type TenantAnswer = Answer<adminApi.ListTenantsResponse>;

/** Puts together what members say. Gateways know the sessions of all hubs; each counts its own tunnels. */
function tenantViews(answers: readonly TenantAnswer[]) {
  const gateways = answers.filter(({ member }) => member.roles.includes('gateway'));
  const names = [...new Set(answers.flatMap(({ value }) => value.tenants.map(({ name }) => name)))].sort();
  return names.map((name) => {
    const found = (from: readonly TenantAnswer[]) =>
      from.flatMap(({ member, value }) =>
        value.tenants.filter((each) => each.name === name).map((tenant) => ({ member: member.id, tenant })),
      );
    const all = found(answers);
    const front = gateways.length > 0 ? found(gateways) : all;
    const sum = (of: (tenant: adminApi.Tenant) => number) => front.reduce((total, { tenant }) => total + of(tenant), 0);
    const seen = (of: (tenant: adminApi.Tenant) => number) =>
      gateways.length > 0 ? Math.max(0, ...front.map(({ tenant }) => of(tenant))) : sum(of);
    return {
      tenant: name,
      file: all[0]?.tenant.file ?? '',
      source: all[0]?.tenant.source ?? '',
      agents: seen(({ agents }) => agents),
      sessions: seen(({ sessions }) => sessions),
      /** Those that dialled within the last five minutes. */
      callers: [...new Set(all.flatMap(({ tenant }) => tenant.callers))].sort(),
      tunnels: sum(({ tunnels }) => tunnels),
      pendingDials: sum(({ pendingDials }) => pendingDials),
      /** Limits hold in each process by itself. */
      use: all.flatMap(({ member, tenant }) => tenant.use.map((use) => useView(member, use))),
      certificates: certificateViews(all.flatMap(({ tenant }) => tenant.certificates)),
    };
  });
}

function useView(member: string, { limit, used, most }: adminApi.TenantUse) {
  return { limit, member, used, ...(most !== undefined && { most }) };
}

/** Each once, the one that ends first first. */
function certificateViews(all: readonly adminApi.TenantCertificate[]) {
  const sorted = [...all].sort((a, b) => a.expiresMs - b.expiresMs);
  const views = sorted.map(({ where, name, expiresMs }) => ({ where, name, expires: isoTime(expiresMs) }));
  return [...new Map(views.map((view) => [JSON.stringify(view), view])).values()];
}

function problemViews(answers: readonly TenantAnswer[]): ProblemView[] {
  const found = new Map<string, ProblemView>();
  for (const { member, value } of answers) {
    for (const { file, line, column, message, kept } of value.problems) {
      const key = JSON.stringify([file, line, column, message]);
      const members = [...(found.get(key)?.members ?? []), member.id];
      found.set(key, { file, line, column, message, members, ...(kept !== '' && { kept }) });
    }
  }
  return [...found.values()];
}

/** The limit of which most is used, in one process. */
function fullest(use: readonly UseView[]): (UseView & { readonly part: number }) | undefined {
  const parts = use.flatMap((each) => (each.most === undefined ? [] : { ...each, part: each.used / each.most }));
  return parts.sort((a, b) => b.part - a.part)[0];
}
