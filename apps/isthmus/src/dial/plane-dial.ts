import { adviceFor } from '@isthmus/findings';
import { adminApi } from '@isthmus/proto/admin';
import { EXIT, Failure, usage } from '../exit.ts';
import type { Member } from '../plane/member.ts';
import type { Plane } from '../plane/plane.ts';
import { isInvalid } from '../plane/reason.ts';
import type { DialView, PhaseView } from './text.ts';

/** Opens tunnels through one gateway. */
export class PlaneDial {
  readonly #plane: Plane;
  readonly #gateway: Member;
  readonly #request: Request;

  private constructor(plane: Plane, gateway: Member, request: Request) {
    this.#plane = plane;
    this.#gateway = gateway;
    this.#request = request;
  }

  /** Chooses the first gateway that answers. @throws Failure if none does */
  static async from(plane: Plane, gateways: readonly Member[], request: Request): Promise<PlaneDial> {
    const present = await plane.askThese(gateways, (admin, signal) => admin.getStatus({}, { signal }));
    const [first] = present.answers;
    if (first) return new PlaneDial(plane, first.member, request);
    const why = present.unanswered.map(({ member, reason }) => `${member}: ${reason}`).join('; ');
    throw new Failure(EXIT.unasked, `no gateway answers: ${why}`);
  }

  async once(): Promise<DialView> {
    const value = await this.#dial();
    return dialView(this.#gateway, this.#request, value, await this.#advice(value));
  }

  async #dial(): Promise<adminApi.DialResponse> {
    const { timeoutMs, firstByteTimeoutMs } = this.#request;
    const signal = AbortSignal.timeout(timeoutMs + firstByteTimeoutMs + ON_TOP_MS);
    try {
      return await this.#plane.client(this.#gateway).dial(this.#request, { signal });
    } catch (error) {
      if (isInvalid(error)) throw usage(this.#plane.reason(error));
      const text = `${this.#gateway.id} does not dial: ${this.#plane.reason(error)}`;
      throw new Failure(EXIT.unasked, text, { cause: error });
    }
  }

  /** Returns what to do about a failed dial: the gateway's advice on the state of the plane, otherwise by the error's name. */
  async #advice({ dial }: adminApi.DialResponse): Promise<readonly string[]> {
    if (!dial?.error) return [];
    const { destination, tenant, error } = dial;
    const general = [adviceFor(error.code)];
    if (!ROUTING_ERRORS.includes(error.code)) return general;
    const { answers } = await this.#plane.askThese([this.#gateway], (admin, signal) =>
      admin.explain({ destination, tenant }, { signal }),
    );
    const advice = answers[0]?.value.advice ?? [];
    return advice.length > 0 ? advice : general;
  }
}

export interface Request {
  readonly destination: string;
  readonly tenant: string;
  readonly agentId: string;
  readonly timeoutMs: number;
  /** How long to wait for a first byte, in milliseconds; 0 to wait for none. */
  readonly firstByteTimeoutMs: number;
}

/** Time for the way to the gateway, on top of the dial's. */
const ON_TOP_MS = 2000;

/** Errors about which the gateway knows more than the name says. */
const ROUTING_ERRORS = ['connection_limit_reached', 'connection_terminated', 'destination_unavailable'];

function dialView(
  gateway: Member,
  { destination, firstByteTimeoutMs: firstByte }: Request,
  value: adminApi.DialResponse,
  advice: readonly string[],
): DialView {
  const { dial: record, phases, firstByteMs, ended } = value;
  const error = record?.error;
  const ok = record?.state === adminApi.DialState.DIAL_STATE_ESTABLISHED;
  const silent = ok && firstByte > 0 && firstByteMs === undefined && ended === '';
  return {
    destination,
    gateway: gateway.id,
    ok,
    dial: record?.dialId ?? '',
    trace: record?.traceId ?? '',
    tenant: record?.tenant ?? '',
    agent: record?.agentId ?? '',
    hub: record?.hubId ?? '',
    session: record?.sessionId ?? '',
    ms: record?.ms ?? 0,
    phases: phases.map(phaseView),
    ...(firstByteMs !== undefined && { firstByteMs }),
    ...(silent && { silentMs: firstByte }),
    ...(ended !== '' && { ended }),
    ...(error && { error: { code: error.code, text: error.text, advice } }),
  };
}

function phaseView({ name, depth, startMs, ms, detail }: adminApi.Phase): PhaseView {
  return { name, depth, startMs, ms, detail, failed: /\bfailed\b/.test(detail) };
}
