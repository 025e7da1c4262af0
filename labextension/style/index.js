import './base.css';
import './dashboard.css';
import './sidebar.css';
import './notebook.css';
