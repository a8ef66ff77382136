/** Times and counts by which findings are judged. */
export const FINDINGS = {
  /** Clocks further apart than this get a warning, because logs are then hard to compare. */
  clocksApartMs: 1000,
  /** Clocks further apart than this fail the check: certificates and tokens may seem invalid. */
  clocksFarApartMs: 30_000,
  /** Tenants that are named where a member lacks some that others have. */
  shownTenants: 5,
  /** From this part of a limit on, the rest is soon used up, and the tenant gets a warning. The alert about it has the same part. */
  nearlyUsedUp: 0.8,
  /** With fewer days left, the renewal of a certificate is overdue. */
  certificateDays: 14,
  /** A failure that has not happened again for so long fades. It is over, or rare: agents and callers try again within seconds. */
  oldMs: 60_000,
  /** Names of suspects in one finding. The rest are counted. */
  suspects: 5,
};
