/** A collapsible section of the sidebar with a heading. */
import * as React from 'react';

interface ISectionProps {
  title: string;
  /** Number beside the heading. */
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
