/** A labelled field with its error. */
import * as React from 'react';

import { sentence } from '../messages';
import { IRequestError } from '../state';

interface IFieldProps {
  id: string;
  label: string;
  name: string;
  refusal: IRequestError | null;
  children: React.ReactNode;
}

export function Field({ id, label, name, refusal, children }: IFieldProps): JSX.Element {
  return (
    <div className="jp-GpuShare-field">
      <label htmlFor={id}>{label}</label>
      {children}
      {refusal !== null && refusal.field === name && (
        <div className="jp-GpuShare-refusal" role="alert">
          {sentence(refusal.message)}
        </div>
      )}
    </div>
  );
}
