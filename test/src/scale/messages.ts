/** Messages between the fleet and its worker processes. */

/** How each worker's agents connect. */
export interface FleetSettings {
  /** Ports of hubs on 127.0.0.1. Each agent begins at one of them, in turn. */
  readonly hubPorts: readonly number[];
  readonly tls: { readonly ca: string; readonly cert: string; readonly key: string };
  readonly sessionCount: number;
  /** How long all agents take to move to the hubs that they prefer, in milliseconds. */
  readonly rebalanceTime: number;
  /** Agents of tenants, by their numbers. Unset: all are of the tenant `default`, with the certificate of `tls`. */
  readonly members?: readonly Member[];
}

/** An agent of a tenant. */
export interface Member {
  readonly agentId: string;
  readonly cert: string;
  readonly key: string;
  /** Whatever it is asked to dial, this is where it is in the agent's network. */
  readonly destination: { readonly host: string; readonly port: number };
}

export type ToWorker =
  /** Start agents with these numbers, `from` up to but excluding `to`, every `step`th, as fast as their handshakes allow. */
  | {
      readonly type: 'start';
      readonly from: number;
      readonly to: number;
      readonly step: number;
      readonly settings: FleetSettings;
    }
  /** Let agents leave, as their process does when it is told to end. */
  | { readonly type: 'stop'; readonly numbers: readonly number[] }
  | { readonly type: 'report' };

/** What happened since the last report, and the current state. */
export interface WorkerReport {
  readonly agents: number;
  /** Agents that hold all sessions that they should. */
  readonly covered: number;
  /** Sessions by hub id. */
  readonly sessions: Readonly<Record<string, number>>;
  /** Sessions that opened: when, in milliseconds since the epoch, and at which hub. */
  readonly opened: readonly (readonly [at: number, hubId: string])[];
  /** Attempts to connect that failed, by the error's text. */
  readonly failures: Readonly<Record<string, number>>;
  /** Sessions that ended, by the reason's text. */
  readonly losses: Readonly<Record<string, number>>;
}
