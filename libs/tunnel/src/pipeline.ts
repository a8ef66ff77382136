import type { Dial, DialRequest, Established } from './dial.ts';
import { asDialError, type DialError, type DialTiming } from './errors.ts';
import type { DialFailure, DialOutcome, Role } from './events.ts';
import { type DialSpan, enterSpan, type Observation } from './observe.ts';

/** A dial that a stage has told to wait. The stage calls one of these, once, after its `enter` has returned. */
export interface WaitingDial {
  goOn(): void;
  fail(error: DialError): void;
}

/** One thing that a program looks at in each dial, at once: nothing in it waits. */
export interface Stage {
  readonly name: string;
  /** Called with a dial that comes. Returns why it goes no further, or that it waits; nothing lets it go on. */
  readonly enter: (dial: DialRequest, waiting: WaitingDial) => DialError | 'waits' | undefined;
  /** Called with the answer to a dial that was let in, later stages first. What it throws fails the dial. */
  readonly answered?: (dial: DialRequest, established: Established) => void;
  /** Called once a dial that was let in has its answer, or has failed. */
  readonly left?: (dial: DialRequest) => void;
}

export interface PipelineOptions {
  readonly role: Role;
  /** In the order in which a dial passes them. */
  readonly stages?: readonly Stage[];
  /** Answers the dials that passed all stages. */
  readonly open: Dial;
  readonly observation: Observation;
}

/**
 * A program's Dial: passes each dial through the stages, opens it, and reports its start and its outcome, as events and as a span. What a
 * stage refuses is a dial with an outcome too, and its time is the whole time.
 */
export function pipeline(options: PipelineOptions): Dial {
  return (request) => new Passage(request, options).begin();
}

/** A dial on its way through a program. */
class Passage implements WaitingDial {
  readonly #request: DialRequest;
  readonly #options: PipelineOptions;
  readonly #start = performance.now();
  #span: DialSpan | undefined;
  /** How many stages have let it in. */
  #passed = 0;
  /** Set while and once it has waited. */
  #waited: PromiseWithResolvers<Established> | undefined;

  constructor(request: DialRequest, options: PipelineOptions) {
    this.#request = request;
    this.#options = options;
  }

  begin(): Promise<Established> {
    const { role, observation } = this.#options;
    try {
      this.#span = observation.tracer?.start(`${role}.dial`, this.#request);
      if (this.#span) enterSpan(this.#request, this.#span);
      observation.events.emit('dial:start', role, this.#request);
      return this.#advance();
    } catch (thrown) {
      return Promise.reject(this.#failed(thrown));
    }
  }

  goOn(): void {
    this.#passed++;
    const { resolve, reject } = this.#waited ?? {};
    try {
      this.#advance().then(resolve, reject);
    } catch (thrown) {
      reject?.(this.#failed(thrown));
    }
  }

  fail(error: DialError): void {
    this.#waited?.reject(this.#failed(error));
  }

  /** @throws why a stage refuses it, or what is wrong with a stage */
  #advance(): Promise<Established> {
    const { stages = [], open } = this.#options;
    for (let stage = stages[this.#passed]; stage; stage = stages[++this.#passed]) {
      const said = stage.enter(this.#request, this);
      if (said === 'waits') {
        this.#waited = Promise.withResolvers();
        return this.#waited.promise;
      }
      if (said) throw said;
    }
    return open(this.#request).then(this.#answered, (thrown) => {
      throw this.#failed(thrown);
    });
  }

  /** @throws why nobody gets the tunnel: a stage, or a listener, which is not the dial's fault */
  readonly #answered = (established: Established): Established => {
    const { stages = [] } = this.#options;
    try {
      for (let at = this.#passed - 1; at >= 0; at--) stages[at]?.answered?.(this.#request, established);
    } catch (thrown) {
      established.end.abort(thrown as Error);
      throw this.#failed(thrown);
    }
    const { agentId, sessionId, hubId, agentPrincipal } = established;
    const through = { agentId, sessionId, hubId, ...(agentPrincipal !== undefined && { agentPrincipal }) };
    try {
      this.#end(established, through);
    } catch (thrown) {
      established.end.abort(thrown instanceof Error ? thrown : new Error(String(thrown)));
      throw thrown;
    }
    return established;
  };

  #failed(thrown: unknown): DialError {
    const error = asDialError(thrown);
    if (this.#options.role === 'gateway') error.traceparent = this.#request.traceparent;
    this.#end(error, { error, failure: failureOf(error, this.#request) });
    return error;
  }

  /** It leaves its stages, and its end is reported. @param answer goes back to the caller with this part's own time */
  #end(answer: { timing: DialTiming }, outcome: Omit<DialOutcome, 'ms' | 'timing'>): void {
    const { stages = [], role, observation } = this.#options;
    while (this.#passed > 0) stages[--this.#passed]?.left?.(this.#request);
    const ms = performance.now() - this.#start;
    if (role !== 'gateway') answer.timing = { ...answer.timing, [role === 'hub' ? 'hubMs' : 'agentMs']: ms };
    const { timing } = answer;
    const whole = { ms, timing, ...outcome };
    this.#span?.end(whole);
    observation.events.emit('dial:end', role, this.#request, whole);
  }
}

function failureOf(error: DialError, request: DialRequest): DialFailure {
  if (error.expired) return 'expired';
  if (request.signal.aborted) return 'abandoned';
  if (error.code === 'destination_unavailable') return 'unavailable';
  if (error.code === 'connection_terminated') return 'terminated';
  return 'error';
}
