import type { Tenant } from '@isthmus/admission';
import { getOrPut } from '@isthmus/runtime';
import { encodeControl, type HubMember, type LinkClient, type PolicyRules, TRANSPORT } from '@isthmus/transport';
import type { GatewayLoss } from '@isthmus/tunnel';
import { HUB } from './defaults.ts';

/** A link to an agent. */
interface AgentLink {
  /** @param line a control message as it goes over the wire */
  sendLine(line: string): void;
}

/**
 * Reports the plane's hubs to agents: all of them at the start of a link, then changes, and at least every `TRANSPORT.membershipBeatMs` that
 * nothing changed, because agents forget what nobody renews. Each link has its beat from its own start.
 */
export class HubReports {
  readonly #beats = new Map<AgentLink, NodeJS.Timeout>();
  /** Changes, oldest first, with the links that have not got them yet. */
  readonly #untold: { readonly line: string; readonly listeners: Iterator<AgentLink> }[] = [];
  #next: NodeJS.Immediate | undefined;
  /** Runs for a while after each change was sent. */
  #pause: NodeJS.Timeout | undefined;
  /** Gateways that are gone, and that agents have not been told of. */
  #losses: GatewayLoss[] = [];
  #hubs = new Map<string, HubMember>();
  #current = false;
  /** What was sent last. */
  #told = { hubs: this.#hubs, current: this.#current };

  /** How many links to agents there are. */
  get links(): number {
    return this.#beats.size;
  }

  /** The number of hubs that accept agents. */
  get live(): number {
    let live = 0;
    for (const { draining } of this.#hubs.values()) if (!draining) live++;
    return live;
  }

  /** Returns a function that removes it. */
  add(listener: AgentLink): () => void {
    const [first = [], ...rest] = portions([...this.#hubs.values()]);
    listener.sendLine(encodeControl({ type: 'membership', current: this.#current, hubs: first }));
    for (const changed of rest) listener.sendLine(this.#change(changed, []));
    const beat = setInterval(() => listener.sendLine(this.#change([], [])), TRANSPORT.membershipBeatMs);
    beat.unref();
    this.#beats.set(listener, beat);
    return () => {
      clearInterval(beat);
      this.#beats.delete(listener);
    };
  }

  /** @param hubs all hubs there are */
  update(hubs: Iterable<HubMember>): void {
    this.#hubs = new Map([...hubs].map((hub) => [hub.hubId, hub]));
    this.#tellChanges();
  }

  /** Call when the registry starts or stops answering. While it answers, the list is current and gateways learn of new sessions. */
  registry(current: boolean): void {
    this.#current = current;
    this.#tellChanges();
  }

  /** Tells all agents that a gateway is gone: its process is dead, or its link is lost (docs/RESUME.md). */
  hungUp(loss: GatewayLoss): void {
    this.#losses.push(loss);
    if (this.#losses.length > HUB.losses) this.#losses.shift();
    this.#tellChanges();
  }

  close(): void {
    for (const beat of this.#beats.values()) clearInterval(beat);
    this.#beats.clear();
    this.#untold.length = 0;
    this.#losses.length = 0;
    clearImmediate(this.#next);
    clearTimeout(this.#pause);
  }

  /** Sends at once what would wait: links may be gone later. */
  flush(): void {
    clearTimeout(this.#pause);
    this.#pause = undefined;
    this.#tellChanges();
  }

  #tellChanges(): void {
    if (this.#pause) return;
    const { hubs: before, current } = this.#told;
    const changed = [...this.#hubs.values()].filter((hub) => !same(before.get(hub.hubId), hub));
    const gone = [...before.keys()].filter((hubId) => !this.#hubs.has(hubId));
    const losses = this.#losses.splice(0, HUB.lossesAtOnce);
    const lines = losses.map(({ gateway, reset }) => encodeControl({ type: 'hung-up', gateway, reset }));
    if (changed.length > 0 || gone.length > 0 || current !== this.#current) lines.push(...this.#changes(changed, gone));
    if (lines.length === 0) return;
    this.#told = { hubs: this.#hubs, current: this.#current };
    this.#rest();
    const busy = this.#untold.length > 0;
    for (const line of lines) this.#untold.push({ line, listeners: this.#beats.keys() });
    if (!busy) this.#tellSome();
  }

  /** As long as some links have not got the last changes, no new ones are queued. */
  #rest(): void {
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      if (this.#untold.length > 0) this.#rest();
      else this.#tellChanges();
    }, HUB.tellEveryMs);
  }

  #changes(changed: readonly HubMember[], gone: readonly string[]): string[] {
    const changes = portions(changed);
    const ends = portions(gone);
    const messages = Array.from({ length: Math.max(1, changes.length, ends.length) });
    return messages.map((_, at) => this.#change(changes[at] ?? [], ends[at] ?? []));
  }

  /** A link that starts meanwhile may get a change that its list contains already, and then all later ones, which does no harm. */
  #tellSome(): void {
    for (let told = 0; told < HUB.linksAtOnce; ) {
      const [oldest] = this.#untold;
      if (!oldest) return;
      const { value: listener, done } = oldest.listeners.next();
      if (done) {
        this.#untold.shift();
      } else {
        listener.sendLine(oldest.line);
        told++;
      }
    }
    this.#next = setImmediate(() => this.#tellSome());
  }

  #change(changed: readonly HubMember[], gone: readonly string[]): string {
    return encodeControl({ type: 'membership-change', current: this.#current, changed, gone });
  }
}

function portions<T>(list: readonly T[]): T[][] {
  const parts: T[][] = [];
  for (let at = 0; at < list.length; at += TRANSPORT.hubsInMessage)
    parts.push(list.slice(at, at + TRANSPORT.hubsInMessage));
  return parts;
}

function same(a: HubMember | undefined, b: HubMember): boolean {
  return a?.generation === b.generation && a.draining === b.draining && a.address === b.address && a.zone === b.zone;
}

type PolicyLink = Pick<LinkClient, 'send' | 'closed'>;

/** Tells agents the dial rules of their tenants: when their links open, and when the rules change. */
export class Policies {
  /** By tenant: its links, and the rules that they were told last, as text. */
  readonly #tenants = new Map<string, { readonly links: Set<PolicyLink>; told: string }>();

  add(tenant: Tenant, link: PolicyLink): void {
    this.renew(tenant);
    const rules = agentRules(tenant.file);
    const of = getOrPut(this.#tenants, tenant.name, () => ({
      links: new Set<PolicyLink>(),
      told: JSON.stringify(rules),
    }));
    of.links.add(link);
    link.send({ type: 'policy', ...rules });
    void link.closed.then(() => {
      of.links.delete(link);
      if (of.links.size === 0 && this.#tenants.get(tenant.name) === of) this.#tenants.delete(tenant.name);
    });
  }

  /** Call when a tenant's file has changed. */
  renew(tenant: Tenant | undefined): void {
    const of = tenant && this.#tenants.get(tenant.name);
    if (!of) return;
    const rules = agentRules(tenant.file);
    const text = JSON.stringify(rules);
    if (of.told === text) return;
    of.told = text;
    for (const link of of.links) link.send({ type: 'policy', ...rules });
  }
}

/** What is not of gateways alone. */
function agentRules({ dial: { deny, allow } = {} }: Tenant['file']): PolicyRules {
  return { ...(deny && { deny }), ...(allow && { allow }) };
}
