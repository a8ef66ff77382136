import type { adminApi } from '@isthmus/proto/admin';
import { isoTime } from '../output/json.ts';
import type { Answer } from '../plane/member.ts';
import type { FileProblem } from './check-files.ts';

/** A tenant, as all members of a plane see it together. */
export interface TenantView {
  readonly tenant: string;
  readonly file: string;
  readonly agents: number;
  readonly sessions: number;
  /** Callers that dialled within the last five minutes. */
  readonly callers: readonly string[];
  readonly tunnels: number;
  readonly pendingDials: number;
  /** Limits hold in each process by itself. */
  readonly use: readonly UseView[];
  readonly certificates: readonly CertificateView[];
}

export interface UseView {
  readonly limit: string;
  readonly member: string;
  readonly used: number;
  /** Unset without a limit. */
  readonly most?: number;
}

export interface CertificateView {
  readonly where: string;
  readonly name: string;
  readonly expires: string;
}

/** A file that cannot be used, and the members that say so. */
export interface ProblemView extends FileProblem {
  readonly members: readonly string[];
  /** The tenant that an earlier text of the file keeps in force. */
  readonly kept?: string;
}

type TenantAnswer = Answer<adminApi.ListTenantsResponse>;

/** Puts together what members say. Gateways know the sessions of all hubs; each counts its own tunnels. */
export function tenantViews(answers: readonly TenantAnswer[]): TenantView[] {
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
      agents: seen(({ agents }) => agents),
      sessions: seen(({ sessions }) => sessions),
      callers: [...new Set(all.flatMap(({ tenant }) => tenant.callers))].sort(),
      tunnels: sum(({ tunnels }) => tunnels),
      pendingDials: sum(({ pendingDials }) => pendingDials),
      use: all.flatMap(({ member, tenant }) => tenant.use.map((use) => useView(member, use))),
      certificates: certificateViews(all.flatMap(({ tenant }) => tenant.certificates)),
    };
  });
}

function useView(member: string, { limit, used, most }: adminApi.TenantUse): UseView {
  return { limit, member, used, ...(most !== undefined && { most }) };
}

/** Each once, the one that ends first first. */
function certificateViews(all: readonly adminApi.TenantCertificate[]): CertificateView[] {
  const sorted = [...all].sort((a, b) => Number(a.expiresMs - b.expiresMs));
  const views = sorted.map(({ where, name, expiresMs }) => ({ where, name, expires: isoTime(expiresMs) }));
  return [...new Map(views.map((view) => [JSON.stringify(view), view])).values()];
}

export function problemViews(answers: readonly TenantAnswer[]): ProblemView[] {
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
export function fullest(use: readonly UseView[]): (UseView & { readonly part: number }) | undefined {
  const parts = use.flatMap((each) => (each.most === undefined ? [] : { ...each, part: each.used / each.most }));
  return parts.sort((a, b) => b.part - a.part)[0];
}
