/** Numbers over time in constant memory: the newest replaces the oldest. NaN: not known. */
export class Ring {
  constructor(readonly capacity: number) {
    this.kept = new Float64Array(capacity).fill(NaN);
  }

  get length(): number {
    return this.count;
  }

  /** The newest; NaN: there is none. */
  get newest(): number {
    return this.kept[(this.end + this.capacity - 1) % this.capacity];
  }

  push(value: number | null): void {
    this.kept[this.end] = value ?? NaN;
    this.end = (this.end + 1) % this.capacity;
    this.count = Math.min(this.count + 1, this.capacity);
  }

  /** The oldest first. */
  values(): number[] {
    const begin = (this.end + this.capacity - this.count) % this.capacity;
    return Array.from({ length: this.count }, (_, i) => this.kept[(begin + i) % this.capacity]);
  }

  /** The same with null for NaN, as plots take gaps. */
  valuesOrNull(): (number | null)[] {
    return this.values().map(value => (Number.isNaN(value) ? null : value));
  }

  private readonly kept: Float64Array;
  private end = 0;
  private count = 0;
}
