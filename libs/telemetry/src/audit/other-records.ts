import type { Operation, Operator, SessionInfo } from '@isthmus/tunnel';
import type { AuditRecord, Verified } from './record.ts';

/*
 * Records of what is no dial. Each says in `record` what it is; a dial's record has no such field, and is as it was before there were
 * others. docs/audit.schema.json has the schema of all.
 */

interface Base<Kind extends string> {
  /** RFC 3339 in UTC. */
  readonly time: string;
  readonly record: Kind;
  /** The process that writes it: `--server-id`, or an agent's id. */
  readonly process: string;
}

/** A connection or request that was refused. */
export interface RefusalRecord extends Base<'refusal'>, Verified {
  /** The port, or the part of one. */
  readonly where: string;
  readonly remote: string;
  /** Of its principal, or of the dial that an agent refused; absent if the peer has proven none. */
  readonly tenant?: string;
  /** `host:port` that it wanted to dial, if it was a dial that was refused. */
  readonly destination?: string;
  readonly text: string;
}

/** Refusals of one kind that got no record of their own. */
export interface RefusalsRecord extends Base<'refusals'> {
  /** `agents`, `dials of tenant acme` */
  readonly of: string;
  readonly count: number;
}

/** An agent's session, when it opens and when it has closed. */
export interface SessionRecord extends Base<'session'>, Verified {
  readonly state: 'opened' | 'closed';
  readonly session: string;
  readonly tenant: string;
  readonly agent: string;
  readonly protocol: SessionInfo['protocol'];
  readonly remote: string;
  /** Why it has closed. */
  readonly text?: string;
}

/** What an operator did on the admin port, or was refused. */
export interface OperationRecord extends Base<'operation'>, Omit<Operation, 'operator'> {
  readonly operator: Operator;
}

/** A change of the tenants in force, or a file that cannot be used. Each list names at most 100. */
export interface TenantsRecord extends Base<'tenants'> {
  readonly changed: readonly string[];
  readonly gone: readonly string[];
  /** The tenant that an earlier text of the file keeps in force. */
  readonly tenant?: string;
  /** File, line, column and what is wrong there. */
  readonly problem?: string;
}

export type OtherRecord = RefusalRecord | RefusalsRecord | SessionRecord | OperationRecord | TenantsRecord;

export type TrailRecord = AuditRecord | OtherRecord;
