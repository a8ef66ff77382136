import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { type Certificate, presentedBy, printable, remoteOf } from '@isthmus/runtime';
import type { Refused } from '@isthmus/service';
import { type AnyPrincipal, NotAuthorised, type Operator } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';

/** Who is connected to the admin port. */
export interface Visitor {
  readonly operator: Operator;
  /** Set for an operator of one tenant alone. */
  readonly principal?: AnyPrincipal;
  /** Why it may do nothing: its certificate is of something else than an operator, or contradicts itself. */
  readonly fault?: NotAuthorised;
  /** When its certificate ends, in milliseconds since the epoch. Unset without one. */
  readonly expires?: number;
}

/** A SPIFFE ID of a tenant, well formed or not. What looks like one and cannot be read must not pass as a certificate without one. */
const OF_TENANT = /^spiffe:\/\/[^/]*\/tenant(\/|$)/i;

const OPERATOR =
  /^spiffe:\/\/[a-z0-9._-]{1,255}\/tenant\/([a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)\/operator\/([\w.-]{1,253})$/;

/** What makes an operator one of a tenant, for refusals. */
const RULE = 'admin port: spiffe://TRUST-DOMAIN/tenant/T/operator/NAME';

/**
 * Says who a connection's peer is, by its certificate, which TLS has verified. With the SPIFFE ID of an operator of a tenant
 * (`spiffe://TRUST-DOMAIN/tenant/T/operator/NAME`, a URI SAN) it is that tenant's; without one it is the plane's. The trust domain may
 * be any: `--admin-ca-cert` says whom to trust, and the ID only takes rights away.
 */
export function visitorOf(socket: Socket): Visitor {
  const remote = remoteOf(socket);
  const certificate = socket instanceof TLSSocket ? presentedBy(socket)?.leaf : undefined;
  return certificate ? visitorBy(certificate, remote) : { operator: { identity: remote, remote } };
}

export function visitorBy(certificate: Certificate, remote: string): Visitor {
  const operator = { identity: printable(certificate.name ?? 'no subject'), remote };
  const expires = certificate.validTo;
  const ids = (certificate.names?.uris ?? []).filter((uri) => OF_TENANT.test(uri));
  const refused = (text: string): Visitor => ({ operator, expires, fault: new NotAuthorised(text, { rule: RULE }) });
  const [id, other] = ids;
  if (id === undefined) return { operator, expires };
  if (other !== undefined) {
    return refused(
      `the certificate of ${operator.identity} has several SPIFFE IDs of tenants: ${shown(id)}, ${shown(other)}`,
    );
  }
  const [, tenant, , name] = OPERATOR.exec(id) ?? [];
  if (tenant === undefined || name === undefined) {
    return refused(`the certificate of ${operator.identity} is of ${shown(id)}, which is no operator`);
  }
  return { operator: { ...operator, tenant }, expires, principal: { tenant, role: 'operator', name, rule: RULE } };
}

/** Returns why a visitor may do nothing now, or undefined. @param tenants those of the plane; unset without tenants */
export function faultOfVisitor(
  { operator, principal, fault, expires = Number.POSITIVE_INFINITY }: Visitor,
  tenants: { has(tenant: string): boolean } | undefined,
): NotAuthorised | undefined {
  if (fault) return fault;
  if (Date.now() > expires) {
    return new NotAuthorised(
      `the certificate of ${operator.identity} expired at ${new Date(expires).toISOString()} by the clock here: renew it, or set the clock`,
    );
  }
  if (!principal || !tenants || tenants.has(principal.tenant)) return undefined;
  return new NotAuthorised(`tenant ${principal.tenant} of ${operator.identity} is none of this plane's`);
}

function shown(id: string): string {
  return printable(id.slice(0, ADMIN.shownId));
}

/** The open connections of visitors with certificates. Each ends within a second of its certificate or its tenant. */
export class Visits {
  readonly #tenants: Parameters<typeof faultOfVisitor>[1];
  readonly #refused: Refused;
  readonly #open = new Map<Socket, Visitor>();
  #timer: NodeJS.Timeout | undefined;

  constructor(tenants: Parameters<typeof faultOfVisitor>[1], refused: Refused) {
    this.#tenants = tenants;
    this.#refused = refused;
  }

  /** Watches a connection until it closes. A certificate that is no operator's stays: it is told why at each request. */
  enter(socket: Socket): void {
    const visitor = visitorOf(socket);
    if (socket.destroyed || visitor.expires === undefined || visitor.fault) return;
    this.#open.set(socket, visitor);
    this.#timer ??= setInterval(() => this.#look(), ADMIN.visitsMs).unref();
    socket.once('close', () => this.#leave(socket));
  }

  #look(): void {
    for (const [socket, visitor] of this.#open) {
      const fault = faultOfVisitor(visitor, this.#tenants);
      if (!fault) continue;
      this.#leave(socket);
      this.#refused(visitor.operator.remote, fault);
      socket.destroy();
    }
  }

  #leave(socket: Socket): void {
    this.#open.delete(socket);
    if (this.#open.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
