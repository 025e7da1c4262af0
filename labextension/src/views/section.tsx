/** A part of the sidebar that can be folded, with a heading that screen readers find. */
import * as React from 'react';

interface ISectionProps {
  title: string;
  /** Stands beside the heading: how many. */
  count?: number;
  open?: boolean;
  children: React.ReactNode;
}

export function Section({ title, count, open, children }: ISectionProps): JSX.Element {
  return (
    <details className="jp-GpuShare-section" open={open ?? true}>
      <summary>
        <h3>{title}</h3>
        {count !== undefined && <span className="jp-GpuShare-count">{count}</span>}
      </summary>
      {children}
    </details>
  );
}
