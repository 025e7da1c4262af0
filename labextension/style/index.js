import './base.css';
import './dashboard.css';
import './dashboardMap.css';
import './dashboardCharts.css';
import './dashboardBookings.css';
import './sidebar.css';
import './notebook.css';
